/* Runs one command and prints what it cost: wall seconds, CPU seconds, largest resident set in KiB.
 *
 * A process of its own, because the resident set that the kernel reports for a child includes that of the process it
 * was forked from: behind this one that is under 2 MB, behind a Python interpreter it would hide the small programs.
 *
 * usage: measure RESULT-FILE COMMAND…
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    struct timespec a, b;
    struct rusage u;
    int status;
    clock_gettime(CLOCK_MONOTONIC, &a);
    pid_t child = fork();
    if (child < 0) { perror("fork"); return 1; }
    if (!child) { execvp(argv[2], argv + 2); perror(argv[2]); _exit(127); }
    if (wait4(child, &status, 0, &u) != child) { perror("wait4"); return 1; }
    clock_gettime(CLOCK_MONOTONIC, &b);
    FILE *f = fopen(argv[1], "w");
    if (!f) { perror(argv[1]); return 1; }
    fprintf(f, "%.6f %.6f %ld\n", (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9,
            seconds(u.ru_utime) + seconds(u.ru_stime), u.ru_maxrss);
    fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
