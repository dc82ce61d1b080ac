"""What the system refuses: an error with the code of its cause, after a bounded number of attempts."""

from __future__ import annotations

from programs import run


def test_lack_of_open_files_is_its_own_error_and_breaks_an_executor() -> None:
    """A pool says LimitReached after a few attempts; an executor is broken, as any whose workers cannot start."""
    lines = run("""
        import concurrent.futures.process, os, resource
        import drover

        def kill():
            os.kill(os.getpid(), 9)

        def lack_of_files(pool, call):
            pool_pid = pool.submit(os.getpid).result(60) if hasattr(pool, "submit") else pool.apply(os.getpid)
            lowest = os.dup(0)
            os.close(lowest)
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
            try:
                os.kill(pool_pid, 9)
                for _ in range(100):
                    try:
                        call()
                    except drover.PeerLost:
                        continue  # the worker had just died
                    except Exception as error:
                        return type(error).__name__
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

        if __name__ == "__main__":
            with drover.Pool(1, output="discarded") as pool:
                print(lack_of_files(pool, lambda: pool.apply_async(abs, (-1,)).get(60)))
            with drover.Executor(1, output="discarded") as executor:
                print(lack_of_files(executor, lambda: executor.submit(abs, -1).result(60)))
    """)
    assert [line for line in lines if line in ("LimitReached", "BrokenProcessPool", "None")] == [
        "LimitReached",
        "BrokenProcessPool",
    ]
