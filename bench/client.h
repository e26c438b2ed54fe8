/* A client of the wire that is fast enough to measure with: one kept connection. */
#ifndef BENCH_CLIENT_H
#define BENCH_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bench_opts {
	const char *url, *token, *runtime, *engine, *state;
	uint64_t windows, runs, opens, rate_ms, transfer_mib;
	bool help;
};
extern struct bench_opts opts;
extern uint16_t port;

struct conn {
	int fd;
	char in[1 << 20];
	size_t n;
};

struct target {
	char path[128], token[64], id[80];
};

void die(const char *what) __attribute__((noreturn));
void conn_open(struct conn *c);
void conn_send(struct conn *c, const char *method, const char *path, const char *token,
	       const void *body, size_t n);
/* A whole answer is in c->in: its status and where its body is; 0 when more is needed. */
int conn_parse(struct conn *c, const char **body, size_t *used);
bool conn_read(struct conn *c); /* false when the connection ended */
int conn_call(struct conn *c, const char *method, const char *path, const char *token,
	      const char *body, const char **answer);
void session_open(struct conn *c, struct target *t);
void session_close(struct conn *c, const struct target *t);
void run_body(char out[160]);
void run_once(struct conn *c, const struct target *t);
/* What a shell script prints. */
void run_script(struct conn *c, const struct target *t, const char *script, char *out, size_t cap);

double median(double *v, uint64_t n);

#endif
