/*
 * Commands.  The provider tells how far a run is (state()) and how it ended; what it wrote is
 * in memory, or in a spool that is opened when the run has ended, or looked into while it runs.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/sized.h"
#include "base/text.h"
#include "base/time.h"
#include "garret/file.h"
#include "garret/run.h"
#include "lib/workspace.h"

#define STOP_MS 2000
#define GIVE_UP_MS 5000
#define INPUT_WINDOW (256u * 1024)
#define INPUT_PIECE 32768u
#define LIMIT_MAX (1u << 30)

struct garret_run {
	struct garret_workspace *workspace; /* a handle of its own */
	struct operation op;
	char *command; /* of the record */
	double timeout;
	uint64_t limit;

	struct box_run *run; /* NULL: it has ended */
	bool ended, moved, recorded;
	struct box_run_end end; /* heads taken */
	int spool_fd[2];        /* of the ended; or -EBADF */
	uint64_t read_at[2];

	char *input; /* what is still to be given, from input_at on */
	size_t input_bytes, input_at;
	bool feeds, input_ended;
	bool live; /* it is looked at while it runs */
	uint64_t fed, taken;
};

void garret_result_release(struct garret_result *r)
{
	free(r->out);
	free(r->err);
	memset(r, 0, sizeof(*r));
}

char *garret_text(const void *data, size_t n)
{
	struct utf8_repair u = { .n = 0 };
	struct strbuf out = STRBUF_INIT;

	utf8_repair_add(&u, &out, data, n);
	utf8_repair_end(&u, &out);
	strbuf_reserve(&out, 1);
	out.buf[out.len] = '\0';
	return strbuf_detach(&out, NULL);
}

/* ---- what is asked ---- */

static int check(const struct garret_run_options *o, struct garret_error *err)
{
	if (!o->argv == !o->shell)
		return garret_fail(err, GARRET_TYPE,
				   "exactly one of argv (a list) and shell (a string) is wanted");
	if (o->argv && !o->argv[0])
		return garret_fail(err, GARRET_INVALID, "argv: at least one word");
	if (!isfinite(o->timeout) || o->timeout < 0 || (o->timeout == 0 && signbit(o->timeout)))
		return garret_fail(err, GARRET_INVALID,
				   "timeout: a finite number of seconds above 0 (0: none)");
	if (o->timeout > 4e6)
		return garret_fail(err, GARRET_INVALID, "timeout: at most 4000000 seconds");
	if (o->output_limit > LIMIT_MAX)
		return garret_fail(err, GARRET_INVALID, "output_limit: at most %u bytes",
				   LIMIT_MAX);
	if (o->input && o->feed)
		return garret_fail(err, GARRET_INVALID, "input and feed: one of them");
	if (!o->input && o->input_bytes)
		return garret_fail(err, GARRET_TYPE, "input: bytes are wanted, not NULL");
	for (const char *const *e = o->env; e && *e; e++)
		if (!strchr(*e, '=') || **e == '=')
			return garret_fail(err, GARRET_INVALID,
					   "env: NAME=VALUE (item %td is none)", e - o->env);
	return o->cwd ? path_check("cwd", o->cwd, err) : 0;
}

static char *command_text(const struct garret_run_options *o)
{
	struct strbuf out = STRBUF_INIT;

	if (o->shell)
		return xstrdup(o->shell);
	for (const char *const *w = o->argv; *w; w++) {
		if (w != o->argv)
			strbuf_addch(&out, ' ');
		shell_quote(&out, *w);
	}
	strbuf_reserve(&out, 1);
	return strbuf_detach(&out, NULL);
}

static size_t name_length(const char *variable)
{
	return strcspn(variable, "=");
}

/* The provider's variables with the call's over them. */
static const char **merge_env(char *const *own, const char *const *given)
{
	size_t n = strings_count(own), m = 0;
	const char **env, **at;

	while (given && given[m])
		m++;
	at = env = xcalloc(n + m + 1, sizeof(char *));
	for (size_t i = 0; i < n; i++) {
		const size_t length = name_length(own[i]) + 1;
		bool over = false;

		for (size_t k = 0; k < m && !over; k++)
			over = !strncmp(own[i], given[k], length);
		if (!over)
			*at++ = own[i];
	}
	for (size_t k = 0; k < m; k++)
		*at++ = given[k];
	return env;
}

/* It must be a directory; NOT_FOUND, NOT_DIRECTORY. */
static int find_cwd(struct garret_workspace *w, const char *cwd, char **ret,
		    struct garret_error *err)
{
	struct garret_entry e;
	int rc = garret_stat(w, cwd, &e, err);

	if (rc == -GARRET_NOT_REGULAR)
		return garret_fail(err, GARRET_NOT_DIRECTORY, "%s: not a directory", cwd);
	if (rc < 0)
		return rc;
	if (!e.is_dir)
		rc = garret_fail(err, GARRET_NOT_DIRECTORY, "%s: not a directory", cwd);
	else
		*ret = xstrdup(e.path);
	garret_entry_release(&e);
	return rc;
}

/* ---- what comes ---- */

static const struct provider_ops *ops_of(const struct garret_run *r)
{
	return r->workspace->backend->provider->ops;
}

static struct provider *impl_of(const struct garret_run *r)
{
	return r->workspace->backend->provider->impl;
}

static void give_input(struct garret_run *r)
{
	struct box_run_state st = { 0 };

	if (!r->run || !r->feeds)
		return;
	ops_of(r)->state(r->run, &st);
	r->taken = st.taken;
	while (r->input_at < r->input_bytes && r->fed - r->taken < INPUT_WINDOW) {
		const size_t n = MIN(r->input_bytes - r->input_at, (size_t)INPUT_PIECE);

		ops_of(r)->input(r->run, r->input + r->input_at, n);
		r->input_at += n;
		r->fed += n;
	}
}

static void on_news(void *ctx)
{
	struct garret_run *r = ctx;

	r->moved = true;
	give_input(r);
	if (r->run && r->input && !r->input_ended && r->input_at == r->input_bytes) {
		r->input_ended = true;
		ops_of(r)->input(r->run, NULL, 0);
	}
}

static void on_end(void *ctx, struct box_run_end *end)
{
	struct garret_run *r = ctx;
	const struct provider_ops *ops = ops_of(r);
	const char *runs = r->workspace->backend->id;
	bool spooled = false;

	r->run = NULL;
	r->ended = r->moved = true;
	r->end = *end;
	for (int s = 0; s < 2; s++) {
		strbuf_init(&end->head[s]); /* taken */
		if (!end->spooled[s])
			continue;
		spooled = true;
		r->spool_fd[s] = ops->spool_open(impl_of(r), runs, end->spool, s);
		if (r->spool_fd[s] < 0)
			r->end.output_lost = true;
	}
	if (spooled) /* what is open stays */
		ops->spool_remove(impl_of(r), runs, end->spool);
}

/* ---- starting ---- */

static struct garret_run *run_new(struct garret_workspace *w, const struct garret_run_options *o)
{
	struct garret_run *r = xnew(struct garret_run);

	r->workspace = w;
	r->spool_fd[0] = r->spool_fd[1] = -EBADF;
	strbuf_init(&r->end.head[0]);
	strbuf_init(&r->end.head[1]);
	r->timeout = o->timeout;
	r->limit = o->output_limit ? o->output_limit : GARRET_OUTPUT_MAX;
	r->feeds = o->feed || o->input;
	r->op = (struct operation){ .kind = GARRET_OP_RUN };
	if (o->input) {
		r->input = xmemdup(o->input_bytes ? o->input : "", MAX(o->input_bytes, (size_t)1));
		r->input_bytes = o->input_bytes;
	}
	return r;
}

/* With the lock held and the environment open. */
static int ask(struct garret_run *r, const struct garret_run_options *o, const char *cwd,
	       struct garret_error *err)
{
	const char *shell[] = { "/bin/sh", "-c", o->shell, NULL };
	struct backend *b = r->workspace->backend;
	autofree const char **env = merge_env(b->provider->options->env, o->env);
	uint8_t id[RUN_ID_BYTES];
	const struct box_run_spec spec = { .id = id,
					   .argv = o->argv ? o->argv : shell,
					   .env = env,
					   .cwd = cwd,
					   .timeout_ms = (uint32_t)ceil(o->timeout * 1000),
					   .output_limit = r->limit,
					   .input = r->feeds,
					   .live = r->live,
					   .news = on_news };
	struct garret_error own = { 0 };

	if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return garret_fail_errno(err, "random bytes");
	if (r->feeds && !(backend_abilities(b) & GARRET_HAS_STREAMS))
		return garret_fail(err, GARRET_UNSUPPORTED, "provider %s gives commands no input",
				   b->provider->name);
	r->run = b->provider->ops->run(b->box, &spec, on_end, r, &own);
	if (!r->run) {
		if (err)
			*err = own;
		return -(int)own.code;
	}
	on_news(r);
	return 0;
}

static int start(struct garret_run *r, const struct garret_run_options *o, struct garret_error *err)
{
	struct garret_workspace *w = r->workspace;
	struct backend *b = w->backend;
	autofree char *cwd = NULL;
	int rc;

	if (b->provider && !(b->provider->kind->abilities & GARRET_HAS_COMMANDS))
		return garret_fail(err, GARRET_MISUSE, "provider %s doesn't run commands",
				   b->provider->name);
	rc = o->cwd ? find_cwd(w, o->cwd, &cwd, err) : 0;
	if (rc == 0)
		rc = context_enter(b->context, err);
	if (rc < 0)
		return rc;
	rc = backend_open(b, w->cancel, err);
	if (rc == 0)
		rc = ask(r, o, cwd, err);
	context_leave(b->context);
	return rc;
}

static void record(struct garret_run *r, int rc)
{
	if (r->recorded)
		return;
	r->recorded = true;
	(void)operation_end(r->workspace, &r->op, rc);
}

static int start_run(struct garret_workspace *w, const struct garret_run_options *options,
		     bool live, struct garret_run **ret, struct garret_error *err)
{
	struct garret_run_options o = { 0 };
	struct garret_run *r;
	struct garret_workspace *own;
	int rc = sized_copy(&o, sizeof(o), options, options->size, err);

	*ret = NULL;
	if (rc < 0)
		return rc;
	own = garret_workspace_dup(w);
	if (!own)
		return garret_fail(err, GARRET_MISUSE,
				   "this context was made before fork(): make another one");
	r = run_new(own, &o);
	r->live = live;
	rc = operation_begin(own, &r->op, err);
	if (rc == 0)
		rc = check(&o, err);
	if (!o.argv == !o.shell)
		r->command = xstrdup("");
	else
		r->command = command_text(&o);
	r->op.command = r->command;
	if (rc == 0)
		rc = start(r, &o, err);
	if (rc < 0) {
		record(r, rc);
		garret_run_free(r);
		return rc;
	}
	*ret = r;
	return 0;
}

int garret_run_start(struct garret_workspace *w, const struct garret_run_options *options,
		     struct garret_run **ret, struct garret_error *err)
{
	return start_run(w, options, true, ret, err);
}

/* ---- while it runs ---- */

bool garret_run_ended(struct garret_run *r)
{
	struct garret_context *c = r->workspace->backend->context;
	bool ended;

	if (context_enter(c, NULL) < 0)
		return true;
	if (!r->ended)
		context_turn(c);
	ended = r->ended;
	context_leave(c);
	return ended;
}

static ssize_t read_spool(int fd, uint64_t at, void *buf, size_t n, struct garret_error *err)
{
	ssize_t got = pread(fd, buf, n, (off_t)at);

	return got < 0 ? garret_fail_errno(err, "read the output of the command") : got;
}

static ssize_t read_head(const char *head, uint64_t total, uint64_t at, void *buf, size_t n)
{
	n = (size_t)MIN((uint64_t)n, total - MIN(total, at));
	memcpy(buf, head + at, n);
	return (ssize_t)n;
}

static ssize_t read_running(struct garret_run *r, int s, void *buf, size_t n,
			    struct garret_error *err)
{
	struct box_run_state st = { 0 };
	autoclose int fd = -EBADF;

	ops_of(r)->state(r->run, &st);
	n = (size_t)MIN((uint64_t)n, st.total[s] - MIN(st.total[s], r->read_at[s]));
	if (!st.spooled[s])
		return read_head(st.head[s], st.total[s], r->read_at[s], buf, n);
	fd = ops_of(r)->spool_open(impl_of(r), r->workspace->backend->id, st.spool, s);
	return fd < 0 ? garret_fail_errno(err, "open the output of the command")
		      : read_spool(fd, r->read_at[s], buf, n, err);
}

ssize_t garret_run_read(struct garret_run *r, int stream, void *buf, size_t n,
			struct garret_error *err)
{
	struct garret_context *c = r->workspace->backend->context;
	const int s = stream - 1;
	ssize_t got;
	int rc;

	if (s != 0 && s != 1)
		return garret_fail(err, GARRET_INVALID, "stream: 1 or 2");
	rc = context_enter(c, err);
	if (rc < 0)
		return rc;
	if (r->run)
		got = read_running(r, s, buf, n, err);
	else if (r->spool_fd[s] >= 0)
		got = read_spool(r->spool_fd[s], r->read_at[s], buf, n, err);
	else
		got = read_head(r->end.head[s].buf, r->end.head[s].len, r->read_at[s], buf, n);
	if (got > 0)
		r->read_at[s] += (uint64_t)got;
	context_leave(c);
	return got;
}

int garret_run_write(struct garret_run *r, const void *data, size_t n, struct garret_error *err)
{
	struct garret_context *c = r->workspace->backend->context;
	int rc = context_enter(c, err);

	if (rc < 0)
		return rc;
	if (!r->feeds || r->input) {
		context_leave(c);
		return garret_fail(err, GARRET_MISUSE, "this run was not started with feed");
	}
	if (!n && r->run)
		ops_of(r)->input(r->run, NULL, 0);
	for (size_t at = 0; at < n && rc == 0;) {
		size_t piece = MIN(n - at, (size_t)INPUT_PIECE);

		r->moved = false;
		if (!r->run) {
			rc = garret_fail(err, GARRET_CONFLICT, "the command has ended");
			break;
		}
		give_input(r); /* how much was taken? */
		if (r->fed - r->taken >= INPUT_WINDOW) {
			rc = context_wait(c, &r->moved, r->workspace->cancel, 0, err);
			continue;
		}
		ops_of(r)->input(r->run, (const char *)data + at, piece);
		r->fed += piece;
		at += piece;
	}
	context_leave(c);
	return rc;
}

int garret_run_signal(struct garret_run *r, int signo, struct garret_error *err)
{
	struct garret_context *c = r->workspace->backend->context;
	int rc;

	if (signo <= 0 || signo >= NSIG)
		return garret_fail(err, GARRET_INVALID, "signo: the number of a signal");
	rc = context_enter(c, err);
	if (rc < 0)
		return rc;
	if (!r->run)
		rc = garret_fail(err, GARRET_CONFLICT, "the command has ended");
	else if (!ops_of(r)->signal ||
		 !(backend_abilities(r->workspace->backend) & GARRET_HAS_STREAMS))
		rc = garret_fail(err, GARRET_UNSUPPORTED, "provider %s sends no signals",
				 r->workspace->backend->provider->name);
	else
		ops_of(r)->signal(r->run, signo);
	context_leave(c);
	return rc;
}

static void stop(struct garret_run *r, uint32_t grace_ms)
{
	if (r->run)
		ops_of(r)->stop(r->run, grace_ms);
}

void garret_run_stop(struct garret_run *r, double grace)
{
	if (context_enter(r->workspace->backend->context, NULL) < 0)
		return;
	stop(r, isfinite(grace) && grace >= 0 && grace < 3600 ? (uint32_t)(grace * 1000) : STOP_MS);
	context_leave(r->workspace->backend->context);
}

/* ---- its end ---- */

static int collect_stream(struct garret_run *r, int s, size_t max, uint8_t **ret, size_t *ret_n,
			  struct garret_error *err)
{
	const uint64_t total = r->spool_fd[s] >= 0 ? r->end.total[s] : r->end.head[s].len;
	const size_t n = (size_t)MIN(total, (uint64_t)max);
	uint8_t *data = try_alloc(n + 1);
	size_t at = 0;

	if (!data)
		return garret_fail_errno(err, "%zu bytes of output", n);
	while (at < n) {
		ssize_t got = r->spool_fd[s] >= 0
				      ? read_spool(r->spool_fd[s], at, data + at, n - at, err)
				      : read_head(r->end.head[s].buf, total, at, data + at, n - at);

		if (got < 0) {
			free(data);
			return (int)got;
		}
		if (!got) {
			r->end.output_lost = true;
			break;
		}
		at += (size_t)got;
	}
	*ret = data;
	*ret_n = at;
	return 0;
}

/* The smaller of ours and of a service's own. */
static uint64_t limit_of(const struct garret_run *r)
{
	return r->end.limit_bytes ? MIN(r->end.limit_bytes, r->limit) : r->limit;
}

/* How it ended, as a code. */
static int verdict(struct garret_run *r, struct garret_error *err)
{
	const struct box_run_end *e = &r->end;
	const struct garret_provider *p = r->workspace->backend->provider;

	if (e->gone)
		return garret_fail(err, GARRET_GONE, "%s \"%s\" ended under the command", p->name,
				   r->workspace->backend->ref.id);
	if (e->failed.code) {
		if (err)
			*err = e->failed;
		return -(int)e->failed.code;
	}
	if (e->timed_out && e->limit_ms)
		return garret_fail(err, GARRET_TIMEOUT,
				   "the command reached the service's own time limit of %g s",
				   e->limit_ms / 1000.0);
	if (e->timed_out && r->timeout > 0)
		return garret_fail(err, GARRET_TIMEOUT, "the command ran longer than %g s",
				   r->timeout);
	if (e->timed_out)
		return garret_fail(err, GARRET_TIMEOUT,
				   "the command reached the environment's own time limit");
	/* Not every service can be told the caller's limit. */
	if (e->output_limited || e->total[0] + e->total[1] > r->limit)
		return garret_fail(err, GARRET_OUTPUT_LIMIT,
				   "the command wrote more than %llu bytes: let it write to a file",
				   (unsigned long long)limit_of(r));
	if (e->no_process)
		return garret_fail(
			err, GARRET_EXHAUSTED,
			"the command could not begin: processes or memory are exhausted");
	if (e->output_lost)
		return garret_fail(err, GARRET_FAILED, "a part of the command's output was lost");
	return 0;
}

static int result(struct garret_run *r, struct garret_result *ret, struct garret_error *err)
{
	int rc = verdict(r, err);
	const size_t max = rc == 0 ? LIMIT_MAX : GARRET_PREVIEW;
	struct garret_error more = { 0 };

	r->op.exit_code = ret->exit_code = rc == 0 ? r->end.exit_code : -1;
	r->op.bytes = r->end.total[0] + r->end.total[1];
	ret->background = r->end.background;
	ret->limit = rc == -GARRET_OUTPUT_LIMIT ? limit_of(r) : 0;
	if (collect_stream(r, 0, max, &ret->out, &ret->out_bytes, &more) < 0 ||
	    collect_stream(r, 1, max, &ret->err, &ret->err_bytes, &more) < 0) {
		if (rc == 0 && err)
			*err = more;
		rc = rc < 0 ? rc : -(int)more.code;
	}
	if (rc == 0 && r->end.output_lost)
		rc = verdict(r, err);
	return rc;
}

int garret_run_wait(struct garret_run *r, double timeout, struct garret_result *ret,
		    struct garret_error *err)
{
	struct garret_context *c = r->workspace->backend->context;
	const bool bounded = isfinite(timeout) && timeout < 1e9;
	struct garret_error waited = { 0 };
	int rc;

	memset(ret, 0, sizeof(*ret));
	ret->exit_code = -1;
	rc = context_enter(c, err);
	if (rc < 0)
		return rc;
	if (bounded && timeout <= 0)
		context_turn(c);
	rc = context_wait(c, &r->ended, r->workspace->cancel,
			  bounded ? now_ms() + (uint64_t)ceil(MAX(timeout, 0.0) * 1000) : 0,
			  &waited);
	if (rc == -GARRET_TIMEOUT) {
		context_leave(c);
		return 1;
	}
	if (rc < 0) {
		if (err)
			*err = waited;
		/* What it wrote so far goes with it; the giving up itself is not to be given up. */
		stop(r, STOP_MS);
		(void)context_wait(c, &r->ended, NULL, now_ms() + GIVE_UP_MS, NULL);
	}
	if (r->ended) {
		struct garret_error own = { 0 };
		int end = result(r, ret, &own);

		if (rc == 0) {
			rc = end;
			if (rc < 0 && err)
				*err = own;
		}
	}
	context_leave(c);
	record(r, rc);
	return rc;
}

static void leave(struct garret_run *r)
{
	struct garret_context *c = r->workspace->backend->context;

	if (context_enter(c, NULL) < 0)
		return;
	if (r->run) {
		stop(r, STOP_MS);
		(void)context_wait(c, &r->ended, NULL, now_ms() + GIVE_UP_MS, NULL);
	}
	if (r->run)
		ops_of(r)->leave(r->run);
	context_leave(c);
}

struct garret_run *garret_run_free(struct garret_run *r)
{
	if (!r)
		return NULL;
	leave(r);
	record(r, -GARRET_CANCELLED);
	for (int s = 0; s < 2; s++) {
		fd_close(r->spool_fd[s]);
		strbuf_release(&r->end.head[s]);
	}
	garret_workspace_free(r->workspace);
	free(r->command);
	free(r->input);
	free(r);
	return NULL;
}

int garret_run(struct garret_workspace *w, const struct garret_run_options *options,
	       struct garret_result *ret, struct garret_error *err)
{
	struct garret_run *r = NULL;
	int rc;

	memset(ret, 0, sizeof(*ret));
	ret->exit_code = -1;
	rc = start_run(w, options, false, &r, err);
	if (!r)
		return rc;
	rc = garret_run_wait(r, INFINITY, ret, err);
	garret_run_free(r);
	return rc;
}
