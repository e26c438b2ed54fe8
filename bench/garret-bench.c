/*
 * Times a server that speaks the sandboxd wire, each thing interleaved with its
 * floor, so that whatever else the machine does hits both alike:
 *
 *	run	POST /run ["true"], kept connection	floor: vfork+exec+wait of true
 *	null	GET /healthz
 *	open	POST /sessions (and DELETE)		floor: the engine alone (--engine)
 *	rate	16 connections at once			floor: one bare loop a CPU
 *	files	stat, read, write, list (files.c)	floor: null; dd in the session
 *
 * Prints one JSON object a window; judging is the caller's.  Loopback only.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/opt.h"
#include "base/text.h"
#include "base/time.h"
#include "client.h"
#include "files.h"
#include "io/msg.h"
#include "proto/engine.h"
#include "provider/engine_client.h"

#define CONNECTIONS 16

#define B(f, n, k, a, h) OPT(struct bench_opts, f, n, 0, k, a, h)
static const struct opt table[] = {
	B(url, "url", OPT_STRING, "URL", "http://127.0.0.1:PORT"),
	B(token, "token", OPT_STRING, "TOKEN", "the service token"),
	B(runtime, "runtime", OPT_STRING, "ALIAS", "runtime of the sessions"),
	B(engine, "engine", OPT_STRING, "PROGRAM", "garret-engine, for the floor of open"),
	B(state, "state", OPT_STRING, "DIR", "and a state directory for it"),
	B(windows, "windows", OPT_NUMBER, "N", "windows (5)"),
	B(runs, "runs", OPT_NUMBER, "N", "runs a window (100)"),
	B(opens, "opens", OPT_NUMBER, "N", "opens a window (15)"),
	B(rate_ms, "rate-ms", OPT_NUMBER, "MS", "length of each rate measurement (1000)"),
	B(transfer_mib, "transfer", OPT_NUMBER, "MIB",
	  "and transfer files of that size, against dd"),
	B(help, "help", OPT_FLAG, NULL, "show this"),
	{ 0 },
};

extern char **environ;
/* ---- floors ---- */

static void bare_once(void)
{
	char *argv[] = { (char *)(uintptr_t) "true", NULL };
	pid_t pid;
	int status;

	/* glibc's posix_spawn is vfork and exec. */
	if (posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) ||
	    waitpid(pid, &status, 0) != pid || status)
		die("bare true");
}

struct engine {
	int fd;
	pid_t pid;
	uint64_t request;
};

static size_t ask(struct engine *e, struct put *p, const int *fds, unsigned n_fds, uint8_t *answer)
{
	struct garret_error err = { 0 };
	struct init_header h;
	struct get g;
	ssize_t n;

	if (msg_send(e->fd, p->buf, engine_end(p), fds, n_fds, &err) < 0)
		die(err.msg);
	do {
		n = msg_recv(e->fd, answer, ENGINE_FRAME_MAX, NULL, &err);
		if (n <= 0 || !engine_parse(&g, answer, (size_t)n, &h))
			die("the engine ended");
	} while (h.type == ENGINE_DIED);
	if (h.type == ENGINE_ERROR) {
		(void)get_u32(&g);
		(void)get_u32(&g);
		(void)fprintf(stderr, "garret-bench: engine: %s\n", get_str(&g, 512));
		exit(1);
	}
	return (size_t)n;
}

static void engine_begin_alone(struct engine *e)
{
	struct garret_error err = { 0 };
	uint8_t frame[ENGINE_FRAME_MAX];
	struct put p;

	if (engine_start(opts.engine, opts.state, NULL, &e->fd, &e->pid, &err) < 0)
		die(err.msg);
	engine_begin(&p, frame, ENGINE_HELLO, ++e->request);
	put_u16(&p, ENGINE_MAJOR);
	put_u16(&p, ENGINE_MINOR);
	(void)ask(e, &p, NULL, 0, frame);
}

/* From the request until init has said HELLO. Microseconds. */
static double engine_open_once(struct engine *e)
{
	struct engine_open o = {
		.id = "bench",
		.runtime = "host",
		.work_dir = "/workspace",
		.hostname = "bench",
		/* A workspace that is kept, as the daemon's: the same work on disk. */
		.flags = ENGINE_OPEN_CONNECTED
	};
	uint8_t frame[ENGINE_FRAME_MAX], answer[ENGINE_FRAME_MAX];
	struct engine_opened opened;
	struct init_header h;
	struct put p;
	struct get g;
	int pair[2];
	uint64_t start = now_us(), end;
	size_t n;

	if (msg_pair(pair, false, NULL) < 0)
		die("socket pair");
	init_begin(&p, frame, INIT_HELLO, 1);
	p.cap = ENGINE_FRAME_MAX;
	put_u16(&p, INIT_MAJOR);
	put_u16(&p, INIT_MINOR);
	put_bytes(&p, o.nonce, INIT_NONCE);
	if (msg_send(pair[0], frame, init_end(&p), NULL, 0, NULL) < 0)
		die("hello");
	engine_begin(&p, frame, ENGINE_OPEN, ++e->request);
	engine_put_open(&p, &o);
	n = ask(e, &p, &pair[1], 1, answer);
	if (!engine_parse(&g, answer, n, &h) || !engine_get_opened(&g, &opened) ||
	    msg_recv(pair[0], answer, sizeof(answer), NULL, NULL) <= 0)
		die("open");
	end = now_us();
	engine_begin(&p, frame, ENGINE_CLOSE, ++e->request);
	put_u64(&p, opened.handle);
	put_u8(&p, 1);
	(void)ask(e, &p, NULL, 0, answer);
	fd_close(pair[0]);
	fd_close(pair[1]);
	return (double)(end - start);
}

/* Bare loops, one a CPU: trues per second. */
static double bare_rate(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t *counts =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	uint64_t start = now_us(), until = start + opts.rate_ms * 1000, total = 0;

	if (counts == MAP_FAILED)
		die("mmap");
	pid_t pids[64];

	cpus = cpus > 64 ? 64 : cpus;
	for (long i = 0; i < cpus; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			while (now_us() < until) {
				bare_once();
				counts[i]++;
			}
			_exit(0);
		}
	}
	for (long i = 0; i < cpus; i++)
		if (waitpid(pids[i], NULL, 0) != pids[i])
			die("bare loops");
	for (long i = 0; i < cpus; i++)
		total += counts[i];
	(void)munmap(counts, 4096);
	return (double)total * 1e6 / (double)(now_us() - start);
}

/* ---- 16 clients ---- */

static double http_rate(struct conn *conns, const struct target *targets, unsigned n_targets)
{
	struct pollfd pf[CONNECTIONS];
	uint64_t start = now_us(), until = start + opts.rate_ms * 1000, done = 0;
	unsigned flying = CONNECTIONS;
	char body[160];

	for (int i = 0; i < CONNECTIONS; i++) {
		pf[i] = (struct pollfd){ .fd = conns[i].fd, .events = POLLIN };
		conns[i].n = 0;
		run_body(body);
		conn_send(&conns[i], "POST", targets[(unsigned)i % n_targets].path,
			  targets[(unsigned)i % n_targets].token, body, strlen(body));
	}
	while (flying) {
		if (poll(pf, CONNECTIONS, 30000) <= 0)
			die("no answer");
		for (int i = 0; i < CONNECTIONS; i++) {
			const char *at;
			size_t used;
			int status;

			if (!(pf[i].revents & (POLLIN | POLLHUP)))
				continue;
			if (!conn_read(&conns[i]))
				die("the server closed the connection");
			status = conn_parse(&conns[i], &at, &used);
			if (!status)
				continue;
			if (status != 200 || !strstr(at, "\"exit_code\":0")) {
				(void)fprintf(stderr, "garret-bench: %d %.200s\n", status, at);
				exit(1);
			}
			conns[i].n = 0;
			if (now_us() >= until) {
				pf[i].fd = -1;
				flying--;
				continue;
			}
			done++;
			run_body(body);
			conn_send(&conns[i], "POST", targets[(unsigned)i % n_targets].path,
				  targets[(unsigned)i % n_targets].token, body, strlen(body));
		}
	}
	return (double)done * 1e3 / (double)opts.rate_ms;
}

/* ---- windows ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

double median(double *v, uint64_t n)
{
	qsort(v, n, sizeof(*v), compare);
	return n ? v[n / 2] : 0;
}

static double load(void)
{
	double l[1] = { 0 };

	return getloadavg(l, 1) == 1 ? l[0] : -1;
}

static void window(uint64_t number, struct conn *conns, struct target *targets, unsigned n_targets,
		   struct engine *engine)
{
	double *run = xcalloc(opts.runs, sizeof(double)),
	       *bare = xcalloc(opts.runs, sizeof(double)),
	       *null = xcalloc(opts.runs, sizeof(double)),
	       *open = xcalloc(opts.opens, sizeof(double)),
	       *alone = xcalloc(opts.opens, sizeof(double)), rate, floor;
	uint64_t start;

	for (uint64_t i = 0; i < opts.runs; i++) {
		start = now_us();
		bare_once();
		bare[i] = (double)(now_us() - start);
		start = now_us();
		(void)conn_call(&conns[0], "GET", "/healthz", opts.token, "", NULL);
		null[i] = (double)(now_us() - start);
		start = now_us();
		run_once(&conns[0], &targets[0]);
		run[i] = (double)(now_us() - start);
	}
	for (uint64_t i = 0; i < opts.opens; i++) {
		struct target t;

		if (engine->fd >= 0)
			alone[i] = engine_open_once(engine);
		start = now_us();
		session_open(&conns[0], &t);
		open[i] = (double)(now_us() - start);
		session_close(&conns[0], &t);
		(void)usleep(
			80000); /* one open, not a burst: what is prepared ahead is there again */
	}
	files_window(&conns[0], &targets[0]);
	floor = bare_rate();
	/* Servers close connections that rested so long. */
	for (int i = 1; i < CONNECTIONS; i++) {
		fd_close(conns[i].fd);
		conn_open(&conns[i]);
	}
	rate = http_rate(conns, targets, n_targets);
	(void)printf(
		"{\"window\":%llu,\"load\":%.2f,\"run_us\":%.0f,\"bare_us\":%.0f,\"null_us\":%.0f,"
		"\"open_us\":%.0f,\"engine_open_us\":%.0f,\"rate\":%.0f,\"bare_rate\":%.0f%s}\n",
		(unsigned long long)number, load(), median(run, opts.runs), median(bare, opts.runs),
		median(null, opts.runs), median(open, opts.opens), median(alone, opts.opens), rate,
		floor, files_figures());
	(void)fflush(stdout);
	free(run);
	free(bare);
	free(null);
	free(open);
	free(alone);
}

int main(int argc, char **argv)
{
	static struct conn conns[CONNECTIONS];
	struct target targets[4];
	struct engine engine = { .fd = -EBADF };
	struct garret_error err = { 0 };
	autobuf struct strbuf help = STRBUF_INIT;
	uint64_t n = 0;

	if (opt_parse(table, argc, argv, &opts, &err) < 0) {
		(void)fprintf(stderr, "garret-bench: %s\n", err.msg);
		return 2;
	}
	if (opts.help || !opts.url || !opts.token) {
		opt_help(table, &help);
		(void)fputs(help.buf, stdout);
		return opts.help ? 0 : 2;
	}
	if (strncmp(opts.url, "http://127.0.0.1:", 17) != 0 || !parse_u64(opts.url + 17, &n) ||
	    n > 65535) {
		(void)fputs("garret-bench: the URL is http://127.0.0.1:PORT\n", stderr);
		return 2;
	}
	port = (uint16_t)n;
	(void)signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < CONNECTIONS; i++)
		conn_open(&conns[i]);
	for (int i = 0; i < 4; i++)
		session_open(&conns[0], &targets[i]);
	if (opts.engine)
		engine_begin_alone(&engine);
	for (int i = 0; i < 10; i++)
		run_once(&conns[0], &targets[i % 4]);
	for (uint64_t w = 0; w < opts.windows; w++)
		window(w, conns, targets, 4, &engine);
	for (int i = 0; i < 4; i++)
		session_close(&conns[0], &targets[i]);
	fd_close(engine.fd);
	if (engine.pid > 0)
		(void)waitpid(engine.pid, NULL, 0);
	return 0;
}
