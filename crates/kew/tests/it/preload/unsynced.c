/* A disk that loses unsynced data, put under an unchanged program with LD_PRELOAD.
 *
 * Writes wait in the memory of the process until their file is synced. SIGKILL discards them, as a
 * power cut discards the content of caches. Some reach the disk early, whole or cut at 512 bytes, and
 * out of order, as on real disks. A file grows at once, with zeros. Creates, renames and removes happen
 * at once and are noted in a journal. With it the test undoes those that came after the last sync of
 * their directory.
 *
 * It covers the calls that the server's storage uses: pwrite64 and pread64, fsync and fdatasync, open64
 * with O_CREAT, rename, unlink. It does not change write(2).
 *
 *   UNSYNCED_UNDER    only files below this path, which must be absolute
 *   UNSYNCED_JOURNAL  where names are noted
 *   UNSYNCED_TRASH    an existing directory of the same file system, for removed files
 *   UNSYNCED_SEED     determines which writes reach the disk early
 *   UNSYNCED_LIES     if set, a sync claims success and does nothing, as bad disks do
 *   UNSYNCED_CALLS    if set, so many calls happen, and then the process is killed. Directories count, too: they are
 *                     made and removed at once, and so are the files that leave with them
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct change {
    struct change *next;
    off64_t offset;
    size_t size;
    char bytes[];
};

struct file {
    struct file *next;
    dev_t device;
    ino_t inode;
    struct change *first, **last;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct file *files;
static uint64_t chance = 1;
static int journal = -1;
static unsigned removed_count;
static const char *under, *trash, *lies;
static unsigned long calls_left;

static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static ssize_t (*real_pread)(int, void *, size_t, off64_t);
static int (*real_fdatasync)(int);
static int (*real_fsync)(int);
static int (*real_open)(const char *, int, ...);
static int (*real_rename)(const char *, const char *);
static int (*real_unlink)(const char *);
static int (*real_unlinkat)(int, const char *, int);
static int (*real_mkdir)(const char *, mode_t);

__attribute__((constructor)) static void begin(void)
{
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_pread = dlsym(RTLD_NEXT, "pread64");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_open = dlsym(RTLD_NEXT, "open64");
    real_rename = dlsym(RTLD_NEXT, "rename");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    real_unlinkat = dlsym(RTLD_NEXT, "unlinkat");
    real_mkdir = dlsym(RTLD_NEXT, "mkdir");
    under = getenv("UNSYNCED_UNDER");
    trash = getenv("UNSYNCED_TRASH");
    lies = getenv("UNSYNCED_LIES");
    const char *path = getenv("UNSYNCED_JOURNAL"), *seed = getenv("UNSYNCED_SEED");
    if (!under || !trash || !path || !seed) {
        fprintf(stderr, "unsynced: the environment does not say what to do\n");
        abort();
    }
    const char *calls = getenv("UNSYNCED_CALLS");
    calls_left = calls ? strtoul(calls, NULL, 10) + 1 : 0;
    chance = strtoull(seed, NULL, 10) * 0x9E3779B97F4A7C15u | 1;
    journal = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (journal < 0)
        abort();
}

static unsigned below(unsigned limit)
{
    chance ^= chance << 13;
    chance ^= chance >> 7;
    chance ^= chance << 17;
    return (unsigned)((chance >> 11) % limit);
}

/* The lock is held. */
static void count_call(void)
{
    if (calls_left && --calls_left == 0)
        kill(getpid(), SIGKILL);
}

static int is_ours(const char *path)
{
    size_t length = strlen(under);
    return !strncmp(path, under, length) && path[length] == '/';
}

/* The path of an open file below UNSYNCED_UNDER. */
static int path_of(int fd, char *path)
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return is_ours(path);
}

static void note(const char *what, const char *first, const char *second, const char *third)
{
    char line[4 * PATH_MAX];
    int length = snprintf(line, sizeof line, "%s\t%s\t%s\t%s\n", what, first, second, third);
    if (write(journal, line, (size_t)length) != length)
        abort();
}

/* A name for a file that loses its own. The lock is held. */
static void keep(char *kept)
{
    snprintf(kept, PATH_MAX, "%s/%d-%u", trash, getpid(), removed_count++);
}

static struct file *file_of(int fd, int create)
{
    struct stat status;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode))
        return NULL;
    for (struct file *file = files; file; file = file->next)
        if (file->device == status.st_dev && file->inode == status.st_ino)
            return file;
    if (!create)
        return NULL;
    struct file *file = calloc(1, sizeof *file);
    if (!file)
        abort();
    file->device = status.st_dev;
    file->inode = status.st_ino;
    file->last = &file->first;
    file->next = files;
    files = file;
    return file;
}

static void forget(struct file *file)
{
    while (file->first) {
        struct change *change = file->first;
        file->first = change->next;
        free(change);
    }
    file->last = &file->first;
}

static int write_all(int fd, const char *bytes, size_t size, off64_t offset)
{
    while (size) {
        ssize_t count = real_pwrite(fd, bytes, size, offset);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return -1;
        bytes += count;
        size -= (size_t)count;
        offset += count;
    }
    return 0;
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t offset)
{
    char path[PATH_MAX];
    struct stat status;
    if (!path_of(fd, path) || fstat(fd, &status))
        return real_pwrite(fd, bytes, size, offset);
    pthread_mutex_lock(&lock);
    count_call();
    struct file *file = file_of(fd, 1);
    struct change *change = malloc(sizeof *change + size);
    if (!file || !change)
        abort();
    change->next = NULL;
    change->offset = offset;
    change->size = size;
    memcpy(change->bytes, bytes, size);
    *file->last = change;
    file->last = &change->next;
    ssize_t result = (ssize_t)size;
    if (status.st_size < offset + (off64_t)size && ftruncate64(fd, offset + (off64_t)size))
        result = -1;
    /* Early: whole, or one run of its sectors. It still waits too, so that the final order is right. */
    unsigned way = below(4);
    if (result > 0 && way == 0) {
        write_all(fd, bytes, size, offset);
    } else if (result > 0 && way == 1) {
        off64_t end = offset + (off64_t)size;
        off64_t first = offset / 512, last = (end - 1) / 512;
        off64_t from = (first + below((unsigned)(last - first + 1))) * 512;
        off64_t to = from + 512 * (1 + (off64_t)below((unsigned)(last - from / 512 + 1)));
        from = from < offset ? offset : from;
        to = to > end ? end : to;
        write_all(fd, (const char *)bytes + (from - offset), (size_t)(to - from), from);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

ssize_t pread64(int fd, void *bytes, size_t size, off64_t offset)
{
    pthread_mutex_lock(&lock);
    ssize_t count = real_pread(fd, bytes, size, offset);
    struct file *file = count > 0 ? file_of(fd, 0) : NULL;
    for (struct change *change = file ? file->first : NULL; change; change = change->next) {
        off64_t from = change->offset > offset ? change->offset : offset;
        off64_t to = change->offset + (off64_t)change->size;
        to = to < offset + count ? to : offset + count;
        if (from < to)
            memcpy((char *)bytes + (from - offset), change->bytes + (from - change->offset),
                   (size_t)(to - from));
    }
    pthread_mutex_unlock(&lock);
    return count;
}

/* Time in which the power may fail, as on real disks. */
static void take_time(unsigned microseconds_max)
{
    pthread_mutex_lock(&lock);
    unsigned microseconds = below(microseconds_max);
    pthread_mutex_unlock(&lock);
    usleep(microseconds);
}

/* Waiting writes go to the file. The kernel keeps them from here on: the machine stays on. */
static int sync_file(int fd, int (*real)(int))
{
    char path[PATH_MAX];
    struct stat status;
    if (!path_of(fd, path) && strcmp(path, under))
        return real(fd);
    if (lies)
        return 0;
    pthread_mutex_lock(&lock);
    count_call();
    pthread_mutex_unlock(&lock);
    if (!fstat(fd, &status) && S_ISDIR(status.st_mode)) {
        take_time(20000);
        pthread_mutex_lock(&lock);
        note("synced", path, "", "");
        pthread_mutex_unlock(&lock);
        return 0;
    }
    int result = 0;
    take_time(1000);
    pthread_mutex_lock(&lock);
    struct file *file = file_of(fd, 0);
    for (struct change *change = file ? file->first : NULL; change; change = change->next)
        result |= write_all(fd, change->bytes, change->size, change->offset);
    if (file)
        forget(file);
    pthread_mutex_unlock(&lock);
    return result;
}

int fdatasync(int fd)
{
    return sync_file(fd, real_fdatasync);
}

int fsync(int fd)
{
    return sync_file(fd, real_fsync);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (!(flags & O_CREAT) || !is_ours(path))
        return real_open(path, flags, mode);
    pthread_mutex_lock(&lock);
    count_call();
    int is_new = access(path, F_OK) != 0;
    if (is_new)
        note("created", path, "", "");
    int fd = real_open(path, flags, mode);
    struct file *file = fd >= 0 && is_new ? file_of(fd, 0) : NULL;
    if (file)
        forget(file); /* the number belonged to a file that is gone */
    pthread_mutex_unlock(&lock);
    return fd;
}

int rename(const char *from, const char *to)
{
    if (!is_ours(from))
        return real_rename(from, to);
    pthread_mutex_lock(&lock);
    count_call();
    char kept[PATH_MAX] = "";
    if (!access(to, F_OK)) {
        keep(kept);
        if (link(to, kept))
            abort();
    }
    note("renamed", from, to, kept);
    int result = real_rename(from, to);
    pthread_mutex_unlock(&lock);
    return result;
}

int unlink(const char *path)
{
    if (!is_ours(path))
        return real_unlink(path);
    char kept[PATH_MAX];
    pthread_mutex_lock(&lock);
    count_call();
    keep(kept);
    note("removed", path, kept, "");
    int result = link(path, kept) ? -1 : real_unlink(path);
    pthread_mutex_unlock(&lock);
    return result;
}

int unlinkat(int directory, const char *path, int flags)
{
    char within[PATH_MAX];
    if (path_of(directory, within) || is_ours(path)) {
        pthread_mutex_lock(&lock);
        count_call();
        pthread_mutex_unlock(&lock);
    }
    return real_unlinkat(directory, path, flags);
}

int mkdir(const char *path, mode_t mode)
{
    if (is_ours(path)) {
        pthread_mutex_lock(&lock);
        count_call();
        pthread_mutex_unlock(&lock);
    }
    return real_mkdir(path, mode);
}
