// Names of the system calls in which threads commonly wait.
#include <sys/syscall.h>

#include <algorithm>
#include <array>
#include <string>

#include "process/inspect/process_facts.hpp"

namespace drover::process {
namespace {

struct Named {
  long number;
  const char* name;
};

constexpr std::array kCalls = {
    Named{SYS_read, "read"},
    Named{SYS_write, "write"},
    Named{SYS_readv, "readv"},
    Named{SYS_writev, "writev"},
    Named{SYS_pread64, "pread64"},
    Named{SYS_pwrite64, "pwrite64"},
    Named{SYS_ioctl, "ioctl"},
    Named{SYS_futex, "futex"},
    Named{SYS_ppoll, "ppoll"},
    Named{SYS_pselect6, "pselect6"},
    Named{SYS_epoll_pwait, "epoll_pwait"},
    Named{SYS_nanosleep, "nanosleep"},
    Named{SYS_clock_nanosleep, "clock_nanosleep"},
    Named{SYS_wait4, "wait4"},
    Named{SYS_waitid, "waitid"},
    Named{SYS_recvfrom, "recvfrom"},
    Named{SYS_recvmsg, "recvmsg"},
    Named{SYS_sendto, "sendto"},
    Named{SYS_sendmsg, "sendmsg"},
    Named{SYS_accept, "accept"},
    Named{SYS_accept4, "accept4"},
    Named{SYS_connect, "connect"},
    Named{SYS_flock, "flock"},
    Named{SYS_fcntl, "fcntl"},
    Named{SYS_fsync, "fsync"},
    Named{SYS_fdatasync, "fdatasync"},
    Named{SYS_openat, "openat"},
    Named{SYS_close, "close"},
    Named{SYS_mmap, "mmap"},
    Named{SYS_munmap, "munmap"},
    Named{SYS_semop, "semop"},
    Named{SYS_semtimedop, "semtimedop"},
    Named{SYS_msgrcv, "msgrcv"},
    Named{SYS_msgsnd, "msgsnd"},
    Named{SYS_rt_sigtimedwait, "rt_sigtimedwait"},
    Named{SYS_rt_sigsuspend, "rt_sigsuspend"},
    Named{SYS_restart_syscall, "restart_syscall"},
    Named{SYS_io_getevents, "io_getevents"},
#ifdef SYS_poll
    Named{SYS_poll, "poll"},
    Named{SYS_select, "select"},
    Named{SYS_epoll_wait, "epoll_wait"},
    Named{SYS_pause, "pause"},
    Named{SYS_open, "open"},
#endif
    Named{441, "epoll_pwait2"},
    Named{449, "futex_waitv"},
};

}  // namespace

std::string system_call_name(long number) {
  const auto* const found = std::ranges::find(kCalls, number, &Named::number);
  return found == kCalls.end() ? "#" + std::to_string(number) : found->name;
}

}  // namespace drover::process
