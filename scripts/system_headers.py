"""Names of the headers of the compiler and the system: C, C++, POSIX and Linux."""

from __future__ import annotations

_CPP = frozenset(
    """
    algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono cinttypes climits
    clocale cmath codecvt compare complex concepts condition_variable coroutine csetjmp csignal cstdarg cstddef
    cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype cxxabi.h deque exception execution expected filesystem
    format forward_list fstream functional future initializer_list iomanip ios iosfwd iostream istream iterator latch
    limits list locale map memory memory_resource mutex new numbers numeric optional ostream print queue random ranges
    ratio regex scoped_allocator semaphore set shared_mutex source_location span spanstream sstream stack stacktrace
    stdexcept stdfloat stop_token streambuf string string_view syncstream system_error thread tuple type_traits
    typeindex typeinfo unordered_map unordered_set utility valarray variant vector version
    """.split()  # noqa: SIM905 (a page of quotes is harder to read)
)
_C_AND_POSIX = frozenset(
    """
    aio alloca assert byteswap complex cpio ctype dirent dlfcn elf endian err errno error execinfo fcntl features fenv
    float fmtmsg fnmatch ftw getopt glob grp iconv ifaddrs inttypes iso646 langinfo libgen libintl limits link locale
    malloc math mntent monetary mqueue ndbm net/if netdb nl_types paths poll pthread pwd regex resolv sched search
    semaphore setjmp signal spawn stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib stdnoreturn string
    strings syslog tar termios tgmath threads time ucontext ulimit unistd utime utmpx uchar wchar wctype wordexp
    immintrin emmintrin xmmintrin x86intrin arm_neon cpuid
    """.split()  # noqa: SIM905 (a page of quotes is harder to read)
)
_FOLDERS = ("arpa/", "asm/", "linux/", "netinet/", "sys/")


def is_system_header(target: str) -> bool:
    """Whether `target`, as written in an include, comes with the compiler or the system."""
    if target.startswith(_FOLDERS) or target in _CPP:
        return True
    return target.endswith(".h") and target.removesuffix(".h") in _C_AND_POSIX
