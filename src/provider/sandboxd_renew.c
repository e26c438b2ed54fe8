/*
 * Another token for a session whose own one the service no longer takes.
 *
 * The published service answers 401 when a session was purged, reaped or lost in
 * a restart, and can't tell these apart.  So the box attaches again, once for all
 * that wait: either there is nothing to attach to, then the session is gone, or
 * its files were kept, then what was refused is asked again.
 *
 * Under the same name there can be a session that others made anew after ours
 * was purged, and the answer is the same.  Its work directory is another one
 * then, made at another time.  Where the session can't tell that time the two
 * can't be told apart.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/time.h"
#include "net/json.h"
#include "provider/sandboxd_impl.h"

#define BIRTH_MAX 64

struct renewal {
	struct box *box;
	struct list waits; /* token_wait.link */
	struct loop_timer again;
	uint64_t due_ms;
	char *token; /* the new one, until the files are known to be ours */
};

/* ---- those who wait ---- */

static void on_told(struct loop_later *l)
{
	struct token_wait *w = container_of(l, struct token_wait, later);
	const struct garret_error err = w->err;

	w->done(w, err.code ? &err : NULL);
}

static void tell(struct token_wait *w, const struct garret_error *err)
{
	list_remove(&w->link);
	w->err = err ? *err : (struct garret_error){ 0 };
	loop_later_add(w->box->p->loop, &w->later, on_told, w);
}

void sandboxd_renew_leave(struct token_wait *w)
{
	if (!w->box)
		return;
	list_remove(&w->link);
	loop_later_cancel(w->box->p->loop, &w->later);
	w->box = NULL;
}

/* ---- the end ---- */

/* Its request is the box's, which gives it up. */
void sandboxd_renew_end(struct box *b)
{
	struct renewal *r = b->renewal;

	if (!r)
		return;
	loop_timer_clear(&r->again);
	free(r->token);
	free(r);
	b->renewal = NULL;
}

static void finish(struct renewal *r, const struct garret_error *err)
{
	struct box *b = r->box;

	if (err && err->code == GARRET_GONE) {
		b->lost = true;
		sandboxd_gone(b, err);
	} else if (!err) {
		free(b->token);
		b->token = take_ptr(&r->token);
	}
	while (!list_empty(&r->waits))
		tell(list_entry(r->waits.next, struct token_wait, link), err);
	sandboxd_renew_end(b);
}

/* ---- whose files are they? ---- */

int sandboxd_take_where(const char *text, size_t n, char **ret_birth, char **ret_path)
{
	const char *line = n && *text != '/' ? memchr(text, '\n', n) : NULL;
	const size_t first = line ? (size_t)(line - text) : 0;
	const char *path = line ? line + 1 : text;

	n -= (size_t)(path - text);
	while (n && path[n - 1] == '\n')
		n--;
	if (!n || *path != '/' || memchr(path, '\0', n))
		return -GARRET_GONE;
	/* "-", "?" and the first second of all are words for: unknown. */
	if (first && first < BIRTH_MAX && *text >= '1' && *text <= '9' &&
	    strncmp(text, "1970-", 5) != 0)
		*ret_birth = xstrndup(text, first);
	*ret_path = xstrndup(path, n);
	return 0;
}

/* When its work directory was made; NULL: it isn't known, or err says why not.  malloc()ed. */
static char *take_birth(const struct strbuf *body, struct garret_error *err)
{
	json_t *v = sandboxd_parse(body, "POST .../run", err);
	const json_t *out = json_object_get(v, "stdout");
	char *birth = NULL, *path = NULL;

	if (v && (!json_is_string(out) ||
		  sandboxd_take_where(json_string_value(out), json_string_length(out), &birth,
				      &path) < 0))
		(void)garret_fail(err, GARRET_PROTOCOL,
				  "the service could not say where a session works");
	json_decref(v);
	free(path);
	return birth;
}

static void on_where(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	/* The refusal could have the new token in it. */
	static const struct strbuf nothing = STRBUF_INIT;
	struct renewal *r = ctx;
	struct box *b = r->box;
	struct garret_error own = { 0 };
	char *birth = err || status != 200 ? NULL : take_birth(body, &own);

	if (err)
		own = *err;
	else if (status != 200)
		sandboxd_refused(b->p, b, status, &nothing, "/run", true, &own);
	else if (birth && strcmp(birth, b->birth) != 0)
		(void)garret_fail(&own, GARRET_GONE,
				  "session %s no longer exists: its name is another's now", b->id);
	free(birth);
	if (own.code == GARRET_TIMEOUT)
		own.code = GARRET_UNAVAILABLE;
	finish(r, own.code ? &own : NULL);
}

static int ask_where(struct renewal *r, struct garret_error *err)
{
	static const char *const argv[] = { "/bin/sh", "-c", SANDBOXD_WHERE, NULL };
	struct box *b = r->box;
	autofree char *path = sandboxd_path(b, false, "/run");
	autobuf struct strbuf body = STRBUF_INIT;
	char hex[2 * RUN_ID_BYTES + 1];
	uint8_t id[RUN_ID_BYTES];
	const struct ask_spec spec = { .method = "POST",
				       .path = path,
				       .token = r->token,
				       .json = &body,
				       .total_ms = b->p->request_ms + SANDBOXD_SLACK_MS };

	if (getrandom(id, sizeof(id), 0) != (ssize_t)sizeof(id))
		return garret_fail_errno(err, "random bytes");
	hex_encode(id, sizeof(id), hex);
	json_open(&body, '{');
	if (sandboxd_put_command(&body, b, argv, NULL, err) < 0)
		return -GARRET_INVALID;
	json_put_key(&body, "timeout_seconds");
	json_put_double(&body, b->p->request_ms / 1000.0);
	json_put_key(&body, "run_id");
	json_put_string(&body, hex);
	json_close(&body, '}');
	(void)sandboxd_ask(b->p, b, &spec, on_where, r);
	return 0;
}

/* ---- attaching ---- */

static void ask_session(struct renewal *r);

static void on_again(struct loop_timer *t)
{
	ask_session(t->ctx);
}

static void on_session(void *ctx, int status, struct strbuf *body, const struct garret_error *err)
{
	struct renewal *r = ctx;
	struct box *b = r->box;
	struct garret_error own = { 0 };
	autofree char *id = NULL;

	if (err) {
		own = *err;
		if (own.code == GARRET_TIMEOUT)
			(void)garret_fail(&own, GARRET_UNAVAILABLE,
					  "the service did not open session %s again in time",
					  b->id);
	} else if (status == 409 && sandboxd_is_being_opened(body) &&
		   now_ms() + SANDBOXD_AGAIN_MS < r->due_ms) {
		loop_timer_set(b->p->loop, &r->again, now_ms() + SANDBOXD_AGAIN_MS, on_again, r);
		return;
	} else if (status != 200) {
		sandboxd_refused(b->p, b, status, body, "POST /sessions", true, &own);
		if (own.code == GARRET_GONE)
			(void)garret_fail(&own, GARRET_GONE, "session %s no longer exists", b->id);
	} else if (sandboxd_take_session(body, b->id, &id, &r->token, &own) == 0 && b->birth &&
		   ask_where(r, &own) == 0) {
		return;
	}
	finish(r, own.code ? &own : NULL);
}

static void ask_session(struct renewal *r)
{
	struct box *b = r->box;
	autobuf struct strbuf body = STRBUF_INIT;
	const uint64_t now = now_ms();
	const struct ask_spec spec = { .method = "POST",
				       .path = "/sessions",
				       .token = b->p->token,
				       .json = &body,
				       .total_ms =
					       r->due_ms > now ? (uint32_t)(r->due_ms - now) : 1 };

	sandboxd_put_session(&body, b->p, b->id, b->runtime, true);
	(void)sandboxd_ask(b->p, b, &spec, on_session, r);
}

void sandboxd_renew(struct box *b, const char *used, struct token_wait *w,
		    void (*done)(struct token_wait *w, const struct garret_error *err))
{
	struct renewal *r = b->renewal;

	w->box = b;
	w->done = done;
	list_init(&w->link);
	if (b->dead || strcmp(used, b->token) != 0) {
		tell(w, b->dead ? &b->why : NULL);
		return;
	}
	if (!r) {
		r = b->renewal = xnew(struct renewal);
		r->box = b;
		r->due_ms = now_ms() + b->p->opening_ms;
		r->again.ctx = r;
		list_init(&r->waits);
		ask_session(r);
	}
	list_append(&r->waits, &w->link);
}
