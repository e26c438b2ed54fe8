/*
 * How fast the HTTP server moves large bodies: a server in a child, a client
 * with blocks of 256 KiB in the parent, over a Unix socket and loopback TCP.
 *
 * For each way: the best rate of all rounds, what CPU time a gigabyte costs the
 * server in that round, and the longest round of the server's loop in any of them
 * (in CPU time, so that other work on the machine doesn't count).
 *
 * usage: http-stream [-n MIB] [-r ROUNDS] [WAY...]
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "base/text.h"
#include "base/time.h"
#include "io/loop.h"
#include "net/httpd.h"

#define BLOCK (256 * 1024)

/* ---- the server ---- */

static char pattern[1 << 20];
static uint64_t held_us;

struct memory {
	uint64_t left;
};

static ssize_t memory_read(void *ctx, char *buf, size_t cap)
{
	struct memory *m = ctx;
	size_t n = MIN(MIN(cap, sizeof(pattern)), m->left);

	memcpy(buf, pattern, n);
	m->left -= n;
	return (ssize_t)n;
}

/* A child that splices n bytes of page cache into the pipe, as a worker does with a file. */
static void produce(struct http_request *rq, uint64_t n)
{
	int fds[2], file = memfd_create("file", MFD_CLOEXEC);
	struct http_pipe p = { .fd = -EBADF };

	if (file < 0 || write_full(file, pattern, sizeof(pattern)) < 0 || pipe(fds) < 0)
		_exit(9);
	(void)fcntl(fds[0], F_SETPIPE_SZ, 1 << 20);
	if (!fork()) {
		close(fds[0]);
		while (n) {
			loff_t at = 0;
			ssize_t k = splice(file, &at, fds[1], NULL, MIN(n, sizeof(pattern)), 0);

			if (k <= 0)
				_exit(9);
			n -= (uint64_t)k;
		}
		_exit(0);
	}
	close(fds[1]);
	close(file);
	p.fd = fds[0];
	http_answer_pipe(rq, 200, NULL, (int64_t)n, &p);
}

static ssize_t sink(struct http_request *rq, const void *data, size_t n)
{
	(void)rq, (void)data;
	return (ssize_t)n;
}

static uint64_t cpu_us(clockid_t clock)
{
	struct timespec ts = { 0 };

	(void)clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void answer_usage(struct http_request *rq)
{
	char text[64];
	int n = snprintf(text, sizeof(text), "%llu %llu",
			 (unsigned long long)cpu_us(CLOCK_PROCESS_CPUTIME_ID),
			 (unsigned long long)held_us);

	held_us = 0;
	http_answer(rq, 200, "text/plain", text, (size_t)n);
}

static void sunk(struct http_request *rq)
{
	http_answer(rq, 204, NULL, NULL, 0);
}

static void handle(void *ctx, struct http_request *rq)
{
	const char *path = http_path(rq), *n = http_query(rq, "n");
	struct http_source src = { .read = memory_read, .release = free };
	uint64_t bytes = 0;

	(void)ctx;
	if (n)
		(void)parse_u64(n, &bytes);
	if (!strcmp(path, "/usage")) {
		answer_usage(rq);
	} else if (!strcmp(path, "/put")) {
		http_stream_body(rq, sink, sunk);
	} else if (!strcmp(path, "/pipe")) {
		produce(rq, bytes);
	} else {
		struct memory *m = xnew(struct memory);

		m->left = bytes;
		src.ctx = m;
		http_answer_source(rq, 200, NULL, strcmp(path, "/known") ? -1 : (int64_t)bytes,
				   &src);
	}
}

/* The linker puts this in front of what the loop calls: a round ends where the next one begins. */
int __real_epoll_wait(int fd, struct epoll_event *events, int max, int timeout);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int max, int timeout);

int __wrap_epoll_wait(int fd, struct epoll_event *events, int max, int timeout)
{
	static uint64_t begun;
	uint64_t now = cpu_us(CLOCK_PROCESS_CPUTIME_ID);
	int n;

	held_us = MAX(held_us, begun ? now - begun : 0);
	n = __real_epoll_wait(fd, events, max, timeout);
	begun = cpu_us(CLOCK_PROCESS_CPUTIME_ID);
	return n;
}

static void serve(const char *path, int report)
{
	const struct httpd_settings set = { .max_connections = 64, .handle = handle };
	struct httpd *h = NULL;
	struct loop *l = NULL;
	uint16_t port;

	if (loop_new(&l, NULL) < 0 || httpd_new(&h, l, &set, NULL) < 0 ||
	    httpd_listen_tcp(h, "127.0.0.1", 0, &port, NULL) < 0 ||
	    httpd_listen_unix(h, path, 0600, NULL) < 0 ||
	    write_full(report, &port, sizeof(port)) < 0)
		_exit(9);
	(void)signal(SIGCHLD, SIG_IGN);
	memset(pattern, 'p', sizeof(pattern));
	loop_run(l);
}

/* ---- the client ---- */

struct target {
	char path[108];
	uint16_t port;
};

static int dial(const struct target *t, bool tcp)
{
	union {
		struct sockaddr any;
		struct sockaddr_in in;
		struct sockaddr_un un;
	} sa = { .un = { .sun_family = AF_UNIX } };
	int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (tcp)
		sa.in = (struct sockaddr_in){ .sin_family = AF_INET,
					      .sin_port = htons(t->port),
					      .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	else
		(void)snprintf(sa.un.sun_path, sizeof(sa.un.sun_path), "%s", t->path);
	if (fd < 0 || connect(fd, &sa.any, tcp ? sizeof(sa.in) : sizeof(sa.un)) < 0) {
		perror("connect");
		exit(1);
	}
	return fd;
}

/* The answer up to its end of file; only the first bytes are kept. */
static uint64_t hear(int fd, char *first, size_t cap)
{
	static char buf[BLOCK];
	uint64_t total = 0;
	ssize_t n;

	while ((n = recv(fd, buf, sizeof(buf), 0)) > 0) {
		if (!total) {
			size_t keep = MIN(cap - 1, (size_t)n);

			memcpy(first, buf, keep);
			first[keep] = '\0';
		}
		total += (uint64_t)n;
	}
	return total;
}

struct usage {
	unsigned long long cpu_us, held_us;
};

static struct usage usage_of(const struct target *t)
{
	static const char rq[] = "GET /usage HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n";
	autoclose int fd = dial(t, false);
	struct usage u = { 0 };
	char text[1024] = "";
	const char *body;

	if (write_full(fd, rq, sizeof(rq) - 1) < 0 || !hear(fd, text, sizeof(text)))
		exit(1);
	body = strstr(text, "\r\n\r\n");
	if (!body || sscanf(body, "%llu %llu", &u.cpu_us, &u.held_us) != 2)
		exit(1);
	return u;
}

static void send_body(int fd, uint64_t bytes, bool chunked)
{
	static char buf[BLOCK + 16];
	char *start = buf + 8;
	size_t around = chunked ? 10 : 0;

	memset(buf, 'u', sizeof(buf));
	if (chunked) {
		start = buf;
		memcpy(buf, "040000\r\n", 8);
		memcpy(buf + 8 + BLOCK, "\r\n", 2);
	}
	for (uint64_t sent = 0; sent < bytes; sent += BLOCK)
		if (write_full(fd, start, BLOCK + around) < 0) {
			perror("write");
			exit(1);
		}
	if (chunked && write_full(fd, "0\r\n\r\n", 5) < 0)
		exit(1);
}

struct way {
	const char *name;
	bool put, tcp, chunked, pipe;
};

static const struct way ways[] = {
	{ "known-unix", false, false, false, false },
	{ "known-tcp", false, true, false, false },
	{ "chunked-unix", false, false, true, false },
	{ "chunked-tcp", false, true, true, false },
	{ "pipe-unix", false, false, false, true },
	{ "pipe-tcp", false, true, false, true },
	{ "put-unix", true, false, false, false },
	{ "put-tcp", true, true, false, false },
	{ "put-chunked-unix", true, false, true, false },
};

/* One transfer; how long it took in us. */
static uint64_t transfer(const struct target *t, const struct way *w, uint64_t bytes)
{
	autobuf struct strbuf rq = STRBUF_INIT;
	autoclose int fd = dial(t, w->tcp);
	uint64_t start = now_us(), got;
	char first[256] = "";

	if (w->put && w->chunked)
		strbuf_addstr(&rq, "PUT /put HTTP/1.1\r\nTransfer-Encoding: chunked\r\n");
	else if (w->put)
		strbuf_addf(&rq, "PUT /put HTTP/1.1\r\nContent-Length: %llu\r\n",
			    (unsigned long long)bytes);
	else
		strbuf_addf(&rq, "GET /%s?n=%llu HTTP/1.1\r\n",
			    w->chunked ? "chunked"
			    : w->pipe  ? "pipe"
				       : "known",
			    (unsigned long long)bytes);
	strbuf_addstr(&rq, "Host: b\r\nConnection: close\r\n\r\n");
	if (write_full(fd, rq.buf, rq.len) < 0)
		exit(1);
	if (w->put)
		send_body(fd, bytes, w->chunked);
	got = hear(fd, first, sizeof(first));
	if (strncmp(first, w->put ? "HTTP/1.1 204" : "HTTP/1.1 200", 12) != 0 ||
	    (!w->put && got < bytes)) {
		(void)fprintf(stderr, "%s: %llu bytes: %s\n", w->name, (unsigned long long)got,
			      first);
		exit(1);
	}
	return now_us() - start;
}

static void measure(const struct target *t, const struct way *w, uint64_t bytes, unsigned rounds)
{
	uint64_t best = UINT64_MAX;
	double cpu = 0, held = 0, gb = (double)bytes / 1e9;

	for (unsigned i = 0; i < rounds; i++) {
		struct usage before = usage_of(t), after;
		uint64_t us = transfer(t, w, bytes);

		after = usage_of(t);
		if (us < best) {
			best = us;
			cpu = (double)(after.cpu_us - before.cpu_us) / 1e6 / gb;
		}
		held = MAX(held, (double)after.held_us / 1e3);
	}
	printf("%-18s %6.2f GB/s   server %5.3f CPU s/GB   held %5.2f ms\n", w->name,
	       gb / ((double)best / 1e6), cpu, held);
	(void)fflush(stdout);
}

int main(int argc, char **argv)
{
	uint64_t mib = 1024, rounds = 5;
	struct target t = { .port = 0 };
	int fds[2], opt;
	pid_t pid;

	while ((opt = getopt(argc, argv, "n:r:")) != -1)
		if (opt == '?' || !parse_u64(optarg, opt == 'n' ? &mib : &rounds))
			return 2;
	(void)snprintf(t.path, sizeof(t.path), "/tmp/http-stream-%d.sock", getpid());
	if (pipe(fds) < 0 || (pid = fork()) < 0)
		return 1;
	if (!pid) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(t.path, fds[1]);
		_exit(0);
	}
	if (read_full(fds[0], &t.port, sizeof(t.port)) != sizeof(t.port))
		return 1;
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		bool wanted = optind == argc;

		for (int k = optind; k < argc; k++)
			wanted = wanted || strstr(ways[i].name, argv[k]);
		if (wanted)
			measure(&t, &ways[i], mib << 20, (unsigned)rounds);
	}
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	(void)unlink(t.path);
	return 0;
}
