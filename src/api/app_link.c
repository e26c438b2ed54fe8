#include "api/app_link.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/list.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "net/json.h"

#define WORKERS 4
#define WAITING_MAX 256
#define SHARE (WORKERS / 2) /* of one organisation */
#define WAITING_SHARE (WAITING_MAX / 4)
#define ANSWER_MAX (64u << 20)
#define READS 16
#define AGAIN_MS 1000 /* after a start that came to nothing */
#define END_MS 5000
#define WORKER_FD 3

struct ask {
	struct list link; /* app_link.waiting */
	char *organisation;
	struct strbuf frame;
	app_answer_fn fn;
	void *ctx;
};

struct worker {
	struct app_link *link;
	pid_t pid; /* 0: none */
	int fd;
	struct loop_io io;
	struct ask *job;  /* that it has */
	size_t sent;      /* of the job's frame */
	struct strbuf in; /* of its answer */
	bool answered;    /* it was good for something */
};

struct app_link {
	struct loop *loop;
	char *program, *dir;
	struct worker worker[WORKERS];
	struct list waiting;
	size_t n_waiting;
	struct loop_later next;
	uint64_t not_before_ms, sweep_ms;
	struct loop_timer sweep;
	bool sweeps; /* since the first worker */
};

static void ask_free(struct ask *a)
{
	list_remove(&a->link);
	strbuf_release(&a->frame);
	free(a->organisation);
	free(a);
}

static void ask_answer(struct ask *a, unsigned status, struct strbuf *json)
{
	app_answer_fn fn = a->fn;
	void *ctx = a->ctx;

	ask_free(a);
	fn(ctx, status, json);
}

static void ask_refuse(struct ask *a)
{
	autobuf struct strbuf out = STRBUF_INIT;

	strbuf_addstr(&out, "{\"detail\":\"The application layer is not there at the moment\","
			    "\"error\":\"UNAVAILABLE\"}");
	ask_answer(a, 503, &out);
}

/* ---- workers ---- */

static void serve_next(struct app_link *a);

static void worker_end(struct worker *w)
{
	struct ask *job = w->job;

	loop_io_remove(&w->io);
	w->fd = fd_close(w->fd);
	if (w->pid) {
		(void)kill(w->pid, SIGKILL); /* it said that it ends, or nonsense */
		(void)waitpid(w->pid, NULL, 0);
	}
	if (!w->answered)
		w->link->not_before_ms = now_ms() + AGAIN_MS;
	w->pid = 0;
	w->job = NULL;
	strbuf_reset(&w->in);
	if (job)
		ask_refuse(job);
}

static void on_worker(struct loop_io *io, uint32_t events);
static void sweep_later(struct app_link *a);

static void child(const struct app_link *a, int fd)
{
	char *const argv[] = { a->program, NULL };
	sigset_t none;

	sigemptyset(&none);
	(void)sigprocmask(SIG_SETMASK, &none, NULL);
	(void)setsid(); /* a Ctrl-C at our terminal is for us to handle */
	(void)setenv("GARRET_APP_DIR", a->dir, 1);
	(void)unsetenv("SANDBOXD_TOKEN");
	if (fd == WORKER_FD ? fd_set_cloexec(fd, false) < 0 : dup2(fd, WORKER_FD) < 0)
		_exit(127);
	(void)execv(a->program, argv);
	_exit(127);
}

static int worker_start(struct worker *w, struct garret_error *err)
{
	struct app_link *a = w->link;
	int pair[2], rc;

	if (now_ms() < a->not_before_ms)
		return garret_fail(err, GARRET_UNAVAILABLE, "it ended at once just now");
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		return garret_fail_errno(err, "a socket for %s", a->program);
	w->pid = fork();
	if (w->pid == 0)
		child(a, pair[1]);
	fd_close(pair[1]);
	w->fd = pair[0];
	(void)fd_set_nonblock(w->fd, true);
	w->answered = false;
	if (w->pid < 0) {
		w->pid = 0;
		rc = garret_fail_errno(err, "start %s", a->program);
	} else {
		rc = loop_io_add(a->loop, &w->io, w->fd, EPOLLIN, on_worker, w, err);
	}
	if (rc < 0)
		worker_end(w);
	else if (!a->sweeps)
		sweep_later(a);
	return rc;
}

/* ---- what goes to it ---- */

static bool worker_send(struct worker *w)
{
	while (w->job && w->sent < w->job->frame.len) {
		ssize_t n = send(w->fd, w->job->frame.buf + w->sent, w->job->frame.len - w->sent,
				 MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			loop_io_mod(&w->io, EPOLLIN | EPOLLOUT);
			return true;
		}
		if (n < 0)
			return false;
		w->sent += (size_t)n;
	}
	loop_io_mod(&w->io, EPOLLIN);
	return true;
}

/* ---- what comes from it: length (4), status (4), JSON ---- */

static bool answer_is_whole(struct worker *w, uint32_t head[2])
{
	if (w->in.len < 8)
		return false;
	memcpy(head, w->in.buf, 8);
	return w->in.len - 8 >= head[0];
}

static bool worker_read(struct worker *w)
{
	char buf[65536];
	uint32_t head[2];
	ssize_t n = 1;

	/* Others wait for the loop as well: what is left comes in its next round. */
	for (int i = 0; i < READS && n > 0; i++) {
		n = read(w->fd, buf, sizeof(buf));
		if (n > 0)
			strbuf_add(&w->in, buf, (size_t)n);
		if (n > 0 && (!w->job || w->in.len > ANSWER_MAX))
			return false;
	}
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		return false;
	if (w->job && answer_is_whole(w, head)) {
		struct ask *job = w->job;
		struct strbuf json = STRBUF_INIT;

		w->job = NULL;
		w->answered = true;
		strbuf_add(&json, w->in.buf + 8, head[0]);
		strbuf_reset(&w->in);
		ask_answer(job, head[1], &json);
		strbuf_release(&json);
	}
	return true;
}

static void on_worker(struct loop_io *io, uint32_t events)
{
	struct worker *w = io->ctx;
	bool fine = true;

	if (events & EPOLLOUT)
		fine = worker_send(w);
	if (fine && (events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
		fine = worker_read(w);
	if (!fine) {
		log_warn("app", "a worker ended%s",
			 w->answered ? "" : " before it answered: see above");
		worker_end(w);
	}
	serve_next(w->link);
}

/* ---- who does what ---- */

/* One that is idle, else one that can be started. */
static struct worker *free_worker(struct app_link *a)
{
	struct worker *none = NULL;

	for (int i = 0; i < WORKERS; i++) {
		if (a->worker[i].pid && !a->worker[i].job)
			return &a->worker[i];
		if (!a->worker[i].pid && !none)
			none = &a->worker[i];
	}
	return none;
}

static bool is_any_alive(const struct app_link *a)
{
	for (int i = 0; i < WORKERS; i++)
		if (a->worker[i].pid)
			return true;
	return false;
}

static bool may_begin(const struct app_link *a, const struct ask *ask)
{
	unsigned busy = 0;

	for (int i = 0; i < WORKERS; i++)
		busy += a->worker[i].job &&
			!strcmp(a->worker[i].job->organisation, ask->organisation);
	return busy < SHARE;
}

/* The first one whose organisation hasn't its share already; NULL: there is none. */
static struct ask *next_ask(struct app_link *a)
{
	struct ask *ask;

	list_foreach (ask, &a->waiting, link)
		if (may_begin(a, ask))
			return ask;
	return NULL;
}

static void serve_next(struct app_link *a)
{
	struct ask *ask;

	while ((ask = next_ask(a)) != NULL) {
		struct worker *w = free_worker(a);
		struct garret_error err = { 0 };

		if (!w)
			return;
		if (!w->pid && worker_start(w, &err) < 0) {
			if (is_any_alive(a))
				return; /* those have work, and come back here */
			log_warn("app", "no worker: %s", err.msg);
			a->n_waiting--;
			ask_refuse(ask);
			continue;
		}
		list_remove(&ask->link);
		a->n_waiting--;
		w->job = ask;
		w->sent = 0;
		if (!worker_send(w))
			worker_end(w);
	}
}

static void on_next(struct loop_later *l)
{
	serve_next(l->ctx);
}

static bool is_crowded(struct app_link *a, const char *organisation)
{
	const struct ask *ask;
	size_t n = 0;

	list_foreach (ask, &a->waiting, link)
		n += !strcmp(ask->organisation, organisation);
	return a->n_waiting >= WAITING_MAX || n >= WAITING_SHARE;
}

void app_link_ask(struct app_link *a, const char *organisation, const struct strbuf *request,
		  const struct strbuf *raw, app_answer_fn fn, void *ctx)
{
	struct ask *ask = xnew(struct ask);
	const uint32_t json = (uint32_t)request->len,
		       all = (uint32_t)(sizeof(json) + request->len + (raw ? raw->len : 0));

	ask->fn = fn;
	ask->ctx = ctx;
	ask->organisation = xstrdup(organisation);
	strbuf_init(&ask->frame);
	list_init(&ask->link);
	strbuf_add(&ask->frame, &all, sizeof(all));
	strbuf_add(&ask->frame, &json, sizeof(json));
	strbuf_add(&ask->frame, request->buf, request->len);
	if (raw)
		strbuf_add(&ask->frame, raw->buf, raw->len);
	if (is_crowded(a, organisation)) {
		ask_refuse(ask);
		return;
	}
	a->n_waiting++;
	list_append(&a->waiting, &ask->link);
	loop_later_add(a->loop, &a->next, on_next, a);
}

/* ---- sweeping: a request like others, so that who does it isn't given another one ---- */

static void on_swept(void *ctx, unsigned status, struct strbuf *json)
{
	(void)status; /* it said in the log what failed */
	(void)json;
	sweep_later(ctx);
}

static void on_sweep(struct loop_timer *t)
{
	autobuf struct strbuf request = STRBUF_INIT;

	strbuf_addstr(&request, "{\"op\":\"sweep\",\"organisation\":\"\",\"args\":{}}");
	app_link_ask(t->ctx, "", &request, NULL, on_swept, t->ctx);
}

static void sweep_later(struct app_link *a)
{
	a->sweeps = true;
	loop_timer_set(a->loop, &a->sweep, now_ms() + a->sweep_ms, on_sweep, a);
}

/* ---- life ---- */

struct app_link *app_link_new(struct loop *l, const struct app_link_config *config)
{
	struct app_link *a = xnew(struct app_link);

	a->loop = l;
	a->program = xstrdup(config->program);
	a->dir = xstrdup(config->dir);
	a->sweep_ms = config->sweep_ms;
	list_init(&a->waiting);
	for (int i = 0; i < WORKERS; i++) {
		a->worker[i].link = a;
		a->worker[i].fd = a->worker[i].io.fd = -EBADF;
		strbuf_init(&a->worker[i].in);
	}
	a->next.ctx = a;
	return a;
}

void app_link_start(struct app_link *a)
{
	struct garret_error err = { 0 };

	if (worker_start(&a->worker[0], &err) < 0)
		log_warn("app", "no worker: %s", err.msg);
}

/* The end of its socket ends it, behind what it is at. */
static void let_end(struct worker *w)
{
	const uint64_t until = now_ms() + END_MS;

	loop_io_remove(&w->io);
	w->fd = fd_close(w->fd);
	while (w->pid && waitpid(w->pid, NULL, WNOHANG) == 0) {
		if (now_ms() >= until)
			(void)kill(w->pid, SIGKILL);
		(void)usleep(5000);
	}
}

struct app_link *app_link_free(struct app_link *a)
{
	if (!a)
		return NULL;
	loop_later_cancel(a->loop, &a->next);
	while (!list_empty(&a->waiting))
		ask_refuse(list_entry(a->waiting.next, struct ask, link));
	for (int i = 0; i < WORKERS; i++) {
		if (a->worker[i].job)
			ask_refuse(a->worker[i].job);
		a->worker[i].job = NULL;
		let_end(&a->worker[i]);
		strbuf_release(&a->worker[i].in);
	}
	loop_timer_clear(&a->sweep); /* one that was refused has set it again */
	free(a->program);
	free(a->dir);
	free(a);
	return NULL;
}
