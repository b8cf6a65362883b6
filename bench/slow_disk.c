/* When this library is preloaded, each sync of a file takes SYNC_MS milliseconds longer. */

#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int later(long call, int file)
{
    usleep(1000 * atoi(getenv("SYNC_MS")));
    return syscall(call, file);
}

int fsync(int file) { return later(SYS_fsync, file); }
int fdatasync(int file) { return later(SYS_fdatasync, file); }
