#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"

#define TIMES 60
#define WRITE_BYTES (300 * 1024)
#define BLOCK (256 * 1024)

static char figures[512];

struct op {
	const char *name, *route, *body;
	size_t bytes; /* of a body that is not JSON */
	unsigned status;
};

static const struct op ops[] = {
	{ "stat_us", "stat", "{\"path\":\"/workspace/bench/one\"}", 0, 200 },
	{ "read_us", "read", "{\"path\":\"/workspace/bench/one\"}", 0, 200 },
	{ "write_us", "write?path=/workspace/bench/big", NULL, WRITE_BYTES, 204 },
	{ "list_us", "list", "{\"path\":\"/workspace/bench/many\"}", 0, 200 },
};

/* False when the server sends us to the shell. */
static bool once(struct conn *c, const struct target *t, const struct op *op, const void *big)
{
	const char *answer;
	char path[200];
	size_t used;
	int status;

	(void)snprintf(path, sizeof(path), "/sessions/%s/files/%s", t->id, op->route);
	if (op->body)
		conn_send(c, "POST", path, t->token, op->body, strlen(op->body));
	else
		conn_send(c, "POST", path, t->token, big, op->bytes);
	c->n = 0;
	while (!(status = conn_parse(c, &answer, &used)))
		if (!conn_read(c))
			die("the server closed the connection");
	if (status != (int)op->status && status != 409) {
		(void)fprintf(stderr, "garret-bench: %s: %.300s\n", op->route, c->in);
		exit(1);
	}
	return status != 409;
}

/* The same bytes, written and put in place by nobody but us: the file system's part. */
static double bare_write(const void *big)
{
	autofree char *temp = xasprintf("%s/bare.tmp", opts.state),
		      *path = xasprintf("%s/bare", opts.state);
	uint64_t start = now_us();
	int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || write_full(fd, big, WRITE_BYTES) < 0 || close(fd) < 0 ||
	    rename(temp, path) < 0)
		die("write a file");
	return (double)(now_us() - start);
}

/* ---- large files ---- */

/* MB/s that dd says. */
static double dd(struct conn *c, const struct target *t, const char *script)
{
	char out[256];
	const char *at;
	double bytes, seconds;

	run_script(c, t, script, out, sizeof(out));
	at = strstr(out, "copied, ");
	bytes = strtod(out, NULL);
	seconds = at ? strtod(at + 8, NULL) : 0;
	if (!at || seconds <= 0) {
		(void)fprintf(stderr, "garret-bench: dd said: %s\n", out);
		exit(1);
	}
	return bytes / seconds / 1e6;
}

static double download(struct conn *c, const struct target *t, uint64_t want)
{
	static const char body[] = "{\"path\":\"/workspace/bench/large\"}";
	uint64_t start = now_us(), got = 0;
	char path[200], *end;

	(void)snprintf(path, sizeof(path), "/sessions/%s/files/read", t->id);
	conn_send(c, "POST", path, t->token, body, sizeof(body) - 1);
	c->n = 0;
	do {
		if (!conn_read(c))
			die("the server closed the connection");
		c->in[c->n] = '\0';
		end = strstr(c->in, "\r\n\r\n");
	} while (!end);
	for (got = c->n - (size_t)(end + 4 - c->in); got < want;) {
		ssize_t n = read(c->fd, c->in, BLOCK);

		if (n <= 0)
			die("the answer is short");
		got += (uint64_t)n;
	}
	return (double)want / (double)(now_us() - start);
}

static double upload(struct conn *c, const struct target *t, const char *block, uint64_t want)
{
	uint64_t start = now_us();
	const char *answer;
	char head[400];
	size_t used;
	int n = snprintf(head, sizeof(head),
			 "POST /sessions/%s/files/write?path=/workspace/bench/up HTTP/1.1\r\n"
			 "Host: 127.0.0.1\r\nX-Sandbox-Token: %s\r\nContent-Length: %llu\r\n\r\n",
			 t->id, t->token, (unsigned long long)want);

	if (n < 0 || write_full(c->fd, head, (size_t)n) < 0)
		die("send");
	for (uint64_t sent = 0; sent < want; sent += BLOCK)
		if (write_full(c->fd, block, BLOCK) < 0)
			die("send");
	c->n = 0;
	while (!conn_parse(c, &answer, &used))
		if (!conn_read(c))
			die("the server closed the connection");
	return (double)want / (double)(now_us() - start);
}

static void transfer(struct conn *c, const struct target *t, const char *block)
{
	const uint64_t want = opts.transfer_mib << 20;
	double rates[4];
	char script[256], drop[8];

	(void)snprintf(script, sizeof(script),
		       "cd /workspace/bench; [ -e large ] || head -c %llu /dev/zero > large; "
		       "dd if=large of=/dev/null bs=64k 2>&1 | tail -n 1",
		       (unsigned long long)want);
	rates[0] = dd(c, t, script);
	rates[1] = download(c, t, want);
	(void)snprintf(
		script, sizeof(script),
		"cd /workspace/bench; rm -f dd; dd if=/dev/zero of=dd bs=64k count=%llu 2>&1 | tail -n 1",
		(unsigned long long)(want >> 16));
	rates[2] = dd(c, t, script);
	run_script(c, t, "rm -f /workspace/bench/up /workspace/bench/dd", drop, sizeof(drop));
	rates[3] = upload(c, t, block, want);
	run_script(c, t, "rm -f /workspace/bench/up", drop, sizeof(drop));
	(void)snprintf(figures + strlen(figures), sizeof(figures) - strlen(figures),
		       ",\"dd_read\":%.0f,\"down\":%.0f,\"dd_write\":%.0f,\"up\":%.0f", rates[0],
		       rates[1], rates[2], rates[3]);
}

void files_window(struct conn *c, const struct target *t)
{
	static const char make[] =
		"mkdir -p /workspace/bench/many; cd /workspace/bench; [ -e one ] && exit; "
		"head -c 1024 /dev/zero > one; "
		"i=0; while [ $i -lt 1000 ]; do : > many/name-$i; i=$((i+1)); done";
	static double v[ARRAY_SIZE(ops)][TIMES], null[TIMES], bare[TIMES];
	char *block = xcalloc(1, WRITE_BYTES), drop[8];
	bool native = true;

	*figures = '\0';
	run_script(c, t, make, drop, sizeof(drop));
	for (unsigned i = 0; native && i < TIMES; i++) {
		uint64_t start = now_us();

		(void)conn_call(c, "GET", "/healthz", opts.token, "", NULL);
		null[i] = (double)(now_us() - start);
		if (opts.state)
			bare[i] = bare_write(block);
		for (size_t k = 0; native && k < ARRAY_SIZE(ops); k++) {
			start = now_us();
			native = once(c, t, &ops[k], block);
			v[k][i] = (double)(now_us() - start);
		}
	}
	if (native) {
		(void)snprintf(figures, sizeof(figures),
			       ",\"files_null_us\":%.0f,\"bare_write_us\":%.0f",
			       median(null, TIMES), median(bare, TIMES));
		for (size_t k = 0; k < ARRAY_SIZE(ops); k++)
			(void)snprintf(figures + strlen(figures), sizeof(figures) - strlen(figures),
				       ",\"%s\":%.0f", ops[k].name, median(v[k], TIMES));
		if (opts.transfer_mib)
			transfer(c, t, block);
	}
	free(block);
}

const char *files_figures(void)
{
	return figures;
}
