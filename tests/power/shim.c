/* A library for LD_PRELOAD that records the file operations of a process. Each change and each sync of a file directly
 * in POSD_SHIM_DIRECTORY is appended to POSD_SHIM_LOG with its data, in the order of the operations.
 *
 * A mutex is held during an operation and its record, so the log has the order of the operations of all threads.
 * A record is one writev to a file in append mode. `-shm` files are left out: SQLite maps them, never syncs them, and
 * makes them again at the first opening. The shim records only absolute paths. A test replays the log and compares the
 * result with the files, so a missed operation is detected.
 *
 * POSD_SHIM_SYNC_US: microseconds that each sync takes longer (the flash of a till: 5 to 20 ms).
 * POSD_SHIM_KILL: path of a file. If the file exists, the process is killed instead of its next sync.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind { OPEN = 1, WRITE, TRUNCATE, SYNC, UNLINK, RENAME };
enum { CREATED = 1, TRUNCATED = 2, DIRECTORY = 4 };

struct header {
    uint32_t kind;
    int32_t pid;
    int32_t fd;
    uint32_t flags;
    uint64_t offset; /* of a write; the new length of a truncation */
    uint32_t name_bytes;
    uint32_t data_bytes; /* of a write; the new name of a rename */
};

#define MAX_FDS 4096
static const char *directory, *log_path, *kill_path;
static long sync_us;
static int log_fd = -1;
static char watched[MAX_FDS];
static pthread_mutex_t disk = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

__attribute__((constructor)) static void start(void)
{
    const char *us = getenv("POSD_SHIM_SYNC_US");
    directory = getenv("POSD_SHIM_DIRECTORY");
    log_path = getenv("POSD_SHIM_LOG");
    kill_path = getenv("POSD_SHIM_KILL");
    sync_us = us ? atol(us) : 0;
    if (!directory || !log_path)
        abort();
    log_fd = REAL(open)(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log_fd < 0)
        abort();
}

/* The name of a file in the directory. "": the directory itself. NULL: a path outside the directory. */
static const char *name_of(const char *path)
{
    size_t length = directory ? strlen(directory) : 0;
    if (!length || strncmp(path, directory, length) != 0)
        return NULL;
    if (path[length] == '\0')
        return "";
    if (path[length] != '/' || strchr(path + length + 1, '/'))
        return NULL;
    const char *name = path + length + 1;
    size_t name_length = strlen(name);
    if (name_length > 4 && strcmp(name + name_length - 4, "-shm") == 0)
        return NULL;
    return name;
}

static int is_watched(int fd)
{
    return fd >= 0 && fd < MAX_FDS && watched[fd];
}

static void record(enum kind kind, int fd, int flags, uint64_t offset, const char *name, const void *data, size_t bytes)
{
    int before = errno;
    struct header header = {kind, getpid(), fd, flags, offset, name ? strlen(name) : 0, bytes};
    struct iovec parts[] = {{&header, sizeof header}, {(void *)name, header.name_bytes}, {(void *)data, bytes}};
    if (writev(log_fd, parts, 3) != (ssize_t)(sizeof header + header.name_bytes + bytes))
        abort();
    errno = before;
}

static int watched_open(const char *path, int flags, int result, int existed)
{
    if (result < 0)
        return result;
    if (result >= MAX_FDS)
        abort();
    struct stat status;
    if (fstat(result, &status) < 0)
        abort();
    int seen = (existed ? 0 : CREATED) | (flags & O_TRUNC ? TRUNCATED : 0) | (S_ISDIR(status.st_mode) ? DIRECTORY : 0);
    watched[result] = 1;
    record(OPEN, result, seen, 0, name_of(path), NULL, 0);
    return result;
}

#define OPENED(path, flags, call)                                                                                     \
    do {                                                                                                              \
        mode_t mode = 0;                                                                                              \
        if ((flags) & O_CREAT) {                                                                                      \
            va_list rest;                                                                                             \
            va_start(rest, flags);                                                                                    \
            mode = va_arg(rest, mode_t);                                                                              \
            va_end(rest);                                                                                             \
        }                                                                                                             \
        if (!name_of(path))                                                                                           \
            return call;                                                                                              \
        pthread_mutex_lock(&disk);                                                                                    \
        int existed = access(path, F_OK) == 0;                                                                        \
        int result = watched_open(path, flags, call, existed);                                                        \
        pthread_mutex_unlock(&disk);                                                                                  \
        return result;                                                                                                \
    } while (0)

int open(const char *path, int flags, ...)
{
    OPENED(path, flags, REAL(open)(path, flags, mode));
}

int open64(const char *path, int flags, ...)
{
    OPENED(path, flags, REAL(open64)(path, flags, mode));
}

int openat(int at, const char *path, int flags, ...)
{
    OPENED(path, flags, REAL(openat)(at, path, flags, mode));
}

int openat64(int at, const char *path, int flags, ...)
{
    OPENED(path, flags, REAL(openat64)(at, path, flags, mode));
}

int close(int fd)
{
    if (!is_watched(fd))
        return REAL(close)(fd);
    pthread_mutex_lock(&disk);
    watched[fd] = 0;
    int result = REAL(close)(fd);
    pthread_mutex_unlock(&disk);
    return result;
}

#define WRITTEN(fd, data, at, call)                                                                                   \
    do {                                                                                                              \
        if (!is_watched(fd))                                                                                          \
            return call;                                                                                              \
        pthread_mutex_lock(&disk);                                                                                    \
        off64_t where = (at);                                                                                         \
        ssize_t result = call;                                                                                        \
        if (result > 0)                                                                                               \
            record(WRITE, fd, 0, where, NULL, data, result);                                                          \
        pthread_mutex_unlock(&disk);                                                                                  \
        return result;                                                                                                \
    } while (0)

ssize_t write(int fd, const void *data, size_t bytes)
{
    int whence = is_watched(fd) && fcntl(fd, F_GETFL) & O_APPEND ? SEEK_END : SEEK_CUR;
    WRITTEN(fd, data, lseek64(fd, 0, whence), REAL(write)(fd, data, bytes));
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset)
{
    WRITTEN(fd, data, offset, REAL(pwrite)(fd, data, bytes, offset));
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset)
{
    WRITTEN(fd, data, offset, REAL(pwrite64)(fd, data, bytes, offset));
}

/* Make a change, and record the change if it succeeded. */
#define CHANGED(ours, call, ...)                                                                                      \
    do {                                                                                                              \
        if (!(ours))                                                                                                  \
            return call;                                                                                              \
        pthread_mutex_lock(&disk);                                                                                    \
        int result = call;                                                                                            \
        if (result == 0)                                                                                              \
            record(__VA_ARGS__);                                                                                      \
        pthread_mutex_unlock(&disk);                                                                                  \
        return result;                                                                                                \
    } while (0)

int ftruncate(int fd, off_t length)
{
    CHANGED(is_watched(fd), REAL(ftruncate)(fd, length), TRUNCATE, fd, 0, length, NULL, NULL, 0);
}

int ftruncate64(int fd, off64_t length)
{
    CHANGED(is_watched(fd), REAL(ftruncate64)(fd, length), TRUNCATE, fd, 0, length, NULL, NULL, 0);
}

int unlink(const char *path)
{
    const char *name = name_of(path);
    CHANGED(name, REAL(unlink)(path), UNLINK, -1, 0, 0, name, NULL, 0);
}

int rename(const char *path, const char *to)
{
    const char *name = name_of(path), *new_name = name_of(to);
    CHANGED(name && new_name, REAL(rename)(path, to), RENAME, -1, 0, 0, name, new_name, strlen(new_name));
}

static void before_sync(int fd)
{
    if (!is_watched(fd))
        return;
    if (kill_path && access(kill_path, F_OK) == 0)
        kill(getpid(), SIGKILL);
    if (sync_us)
        usleep(sync_us);
}

int fsync(int fd)
{
    before_sync(fd);
    CHANGED(is_watched(fd), REAL(fsync)(fd), SYNC, fd, 0, 0, NULL, NULL, 0);
}

int fdatasync(int fd)
{
    before_sync(fd);
    CHANGED(is_watched(fd), REAL(fdatasync)(fd), SYNC, fd, 0, 0, NULL, NULL, 0);
}
