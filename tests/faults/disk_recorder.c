/* Records what a process does to the files below a directory: LD_PRELOAD this, with RECORDED naming the directory and
 * RECORD the file of the record.
 *
 * A record is: a letter (w write, t truncate, s sync, u unlink), eight 64-bit numbers of the machine, the name of the
 * file, the bytes. The numbers: length of the name, of the bytes, offset, process, CLOCK_MONOTONIC in nanoseconds before and
 * after the call, and two that are 0. One lock is held over a call and its record, so the order of records is that of
 * calls.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;
static char directory[PATH_MAX];

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("RECORDED"), *into = getenv("RECORD");
    if (where == NULL || into == NULL || realpath(where, directory) == NULL)
        return;
    record = (int)syscall(SYS_openat, AT_FDCWD, into, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static uint64_t now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

/* Returns the name below the directory, NULL for any other file. */
static const char *below(const char *path) {
    size_t size = strlen(directory);
    return size && !strncmp(path, directory, size) && path[size] == '/' ? path + size + 1 : NULL;
}

static const char *name_of(int file, char *path) {
    char link[64];
    if (record < 0)
        return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t size = readlink(link, path, PATH_MAX - 1);
    if (size < 0)
        return NULL;
    path[size] = 0;
    return below(path);
}

static void note(char what, const char *name, const void *bytes, uint64_t size, uint64_t offset, uint64_t from) {
    uint64_t numbers[8] = {strlen(name), size, offset, (uint64_t)getpid(), from, now(), 0, 0};
    struct iovec parts[4] = {
        {&what, 1}, {numbers, sizeof numbers}, {(void *)name, strlen(name)}, {(void *)bytes, size}};
    if (syscall(SYS_writev, record, parts, 4) < 0)
        abort();
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (real == NULL) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define WRITE(name, offset_type) \
    ssize_t name(int file, const void *bytes, size_t size, offset_type offset) { \
        REAL(name); \
        char path[PATH_MAX]; \
        const char *known = name_of(file, path); \
        if (known == NULL) \
            return real(file, bytes, size, offset); \
        pthread_mutex_lock(&lock); \
        uint64_t from = now(); \
        ssize_t done = real(file, bytes, size, offset); \
        int error = errno; \
        if (done > 0) \
            note('w', known, bytes, (uint64_t)done, (uint64_t)offset, from); \
        pthread_mutex_unlock(&lock); \
        errno = error; \
        return done; \
    }

WRITE(pwrite, off_t)
WRITE(pwrite64, off64_t)

ssize_t write(int file, const void *bytes, size_t size) {
    REAL(write);
    char path[PATH_MAX];
    const char *known = name_of(file, path);
    if (known == NULL)
        return real(file, bytes, size);
    pthread_mutex_lock(&lock);
    uint64_t from = now();
    off_t at = lseek(file, 0, SEEK_CUR);
    if (fcntl(file, F_GETFL) & O_APPEND)
        at = lseek(file, 0, SEEK_END);
    ssize_t done = real(file, bytes, size);
    int error = errno;
    if (done > 0)
        note('w', known, bytes, (uint64_t)done, (uint64_t)at, from);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}

#define TRUNCATE(name, offset_type) \
    int name(int file, offset_type size) { \
        REAL(name); \
        char path[PATH_MAX]; \
        const char *known = name_of(file, path); \
        if (known == NULL) \
            return real(file, size); \
        pthread_mutex_lock(&lock); \
        uint64_t from = now(); \
        int done = real(file, size); \
        int error = errno; \
        if (done == 0) \
            note('t', known, "", 0, (uint64_t)size, from); \
        pthread_mutex_unlock(&lock); \
        errno = error; \
        return done; \
    }

TRUNCATE(ftruncate, off_t)
TRUNCATE(ftruncate64, off64_t)

#define SYNC(name) \
    int name(int file) { \
        REAL(name); \
        char path[PATH_MAX]; \
        const char *known = name_of(file, path); \
        if (known == NULL) \
            return real(file); \
        pthread_mutex_lock(&lock); \
        uint64_t from = now(); \
        int done = real(file); \
        int error = errno; \
        if (done == 0) \
            note('s', known, "", 0, 0, from); \
        pthread_mutex_unlock(&lock); \
        errno = error; \
        return done; \
    }

SYNC(fsync)
SYNC(fdatasync)

int unlink(const char *file) {
    REAL(unlink);
    char path[PATH_MAX];
    const char *known = record >= 0 && realpath(file, path) ? below(path) : NULL;
    if (known == NULL)
        return real(file);
    pthread_mutex_lock(&lock);
    uint64_t from = now();
    int done = real(file);
    int error = errno;
    if (done == 0)
        note('u', known, "", 0, 0, from);
    pthread_mutex_unlock(&lock);
    errno = error;
    return done;
}
