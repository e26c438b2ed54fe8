#include "core/service_token.h"

#include <math.h>
#include <nettle/memops.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/auto.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "core/event_log.h"
#include "core/service_impl.h"

#define PREFIX "grt_" /* so that a token that leaked is found by who looks for such */
#define SECRET_BYTES 32
#define TOKENS_MAX 4096
#define USED_SECONDS 60.0 /* last_used_at is no finer */

void service_tokens_init(struct service_tokens *t)
{
	list_init(&t->all);
	map_init(&t->by_digest);
}

static void token_free(struct service_token *t)
{
	list_remove(&t->link);
	free(t->name);
	free(t->tenant);
	free(t);
}

void service_tokens_release(struct service_tokens *t)
{
	struct service_token *k;

	list_foreach (k, &t->all, link)
		token_free(k);
	map_release(&t->by_digest);
}

static void digest_key(const uint8_t digest[REGISTRY_DIGEST], char out[2 * REGISTRY_DIGEST + 1])
{
	hex_encode(digest, REGISTRY_DIGEST, out);
}

/* Add it, or bring the one that is there up to date. */
static void keep(struct service_tokens *all, const struct token_row *row)
{
	char key[2 * REGISTRY_DIGEST + 1];
	struct service_token *t;

	digest_key(row->digest, key);
	t = map_find(&all->by_digest, key);
	if (!t) {
		t = xnew(struct service_token);
		t->name = xstrdup(row->name);
		t->tenant = row->tenant ? xstrdup(row->tenant) : NULL;
		t->read_only = row->read_only;
		t->created_at = row->created_at;
		memcpy(t->digest, row->digest, sizeof(t->digest));
		map_set(&all->by_digest, key, t);
		list_append(&all->all, &t->link);
	}
	t->expires_at = row->expires_at;
	t->last_used_at = row->last_used_at;
	t->revoked_at = row->revoked_at;
}

void service_tokens_on_row(struct service *svc, const struct token_row *row)
{
	keep(&svc->tokens, row);
}

static struct token_row row_of(const struct service_token *t)
{
	struct token_row row = { .name = t->name,
				 .tenant = t->tenant,
				 .read_only = t->read_only,
				 .created_at = t->created_at,
				 .expires_at = t->expires_at,
				 .last_used_at = t->last_used_at,
				 .revoked_at = t->revoked_at };

	memcpy(row.digest, t->digest, sizeof(row.digest));
	return row;
}

static bool lives(const struct service_token *t, double now)
{
	return t->revoked_at <= 0 && (t->expires_at <= 0 || now < t->expires_at);
}

static void on_used(void *ctx, const struct garret_error *err)
{
	(void)ctx;
	if (err)
		log_error("registry", "%s", err->msg);
}

const struct service_token *service_tokens_find(struct service *svc,
						const uint8_t digest[REGISTRY_DIGEST])
{
	char key[2 * REGISTRY_DIGEST + 1];
	struct service_token *t;
	double now = wall_seconds();
	struct token_row row;

	/* The map's own comparison may tell how much of a digest is right: of that nobody learns
	 * a token. */
	digest_key(digest, key);
	t = map_find(&svc->tokens.by_digest, key);
	if (!t || !memeql_sec(t->digest, digest, REGISTRY_DIGEST) || !lives(t, now))
		return NULL;
	if (fabs(now - t->last_used_at) >= USED_SECONDS) {
		t->last_used_at = now;
		row = row_of(t);
		svc->registry_ops->tokens_put(svc->registry, &row, 1, on_used, NULL);
	}
	return t;
}

/* ---- minting, rotating, revoking ---- */

/* What is being recorded; it counts when it is. */
struct minting {
	struct loop_later later;
	struct service *service;
	struct token_row *rows; /* their strings are owned */
	size_t n;
	char secret[sizeof(PREFIX) + TOKEN_LENGTH];
	struct refusal no;
	token_done done;
	void *ctx;
};

static struct minting *minting_new(struct service *svc, token_done done, void *ctx)
{
	struct minting *m = xnew(struct minting);

	m->service = svc;
	m->done = done;
	m->ctx = ctx;
	return m;
}

static struct token_row *add_row(struct minting *m, const struct token_row *row)
{
	struct token_row *to;

	m->rows = xrealloc(m->rows, (m->n + 1) * sizeof(*m->rows));
	to = &m->rows[m->n++];
	*to = *row;
	to->name = xstrdup(row->name);
	to->tenant = row->tenant ? xstrdup(row->tenant) : NULL;
	return to;
}

static struct token_info info_of(const struct token_row *row, double now)
{
	return (struct token_info){ .name = row->name,
				    .tenant = row->tenant,
				    .read_only = row->read_only,
				    .created_at = row->created_at,
				    .expires_at = row->expires_at,
				    .last_used_at = row->last_used_at,
				    .revoked_at = row->revoked_at,
				    .active = row->revoked_at <= 0 &&
					      (row->expires_at <= 0 || now < row->expires_at) };
}

static void minting_end(struct minting *m)
{
	struct token_info info = { 0 };
	bool minted = !m->no.status && m->secret[0];

	if (minted)
		info = info_of(&m->rows[0], wall_seconds());
	m->done(m->ctx, minted ? &info : NULL, minted ? m->secret : NULL, &m->no);
	for (size_t i = 0; i < m->n; i++) {
		free((char *)(uintptr_t)m->rows[i].name);
		free((char *)(uintptr_t)m->rows[i].tenant);
	}
	explicit_bzero(m->secret, sizeof(m->secret));
	free(m->rows);
	free(m);
}

static void on_refused(struct loop_later *l)
{
	minting_end(l->ctx);
}

static void on_recorded(void *ctx, const struct garret_error *err)
{
	struct minting *m = ctx;

	if (err)
		refuse(&m->no, err->code == GARRET_NO_SPACE ? 507 : 503, NULL,
		       "Could not record it: %s", err->msg);
	for (size_t i = 0; !err && i < m->n; i++)
		keep(&m->service->tokens, &m->rows[i]);
	minting_end(m);
}

static void begin(struct minting *m)
{
	struct service *svc = m->service;

	if (m->no.status)
		loop_later_add(svc->loop, &m->later, on_refused, m);
	else
		svc->registry_ops->tokens_put(svc->registry, m->rows, m->n, on_recorded, m);
}

/* The new one is the first row. */
static void mint(struct minting *m, struct token_row *row)
{
	uint8_t random[SECRET_BYTES];

	if (getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
		refuse(&m->no, 503, NULL, "No random bytes");
		return;
	}
	memcpy(m->secret, PREFIX, strlen(PREFIX));
	base64url_encode(random, sizeof(random), m->secret + strlen(PREFIX));
	explicit_bzero(random, sizeof(random));
	token_digest(m->secret, row->digest);
	(void)add_row(m, row);
}

/* The newest living one of that name. */
static const struct service_token *find_named(const struct service *svc, const char *name)
{
	const struct service_token *t, *found = NULL;
	double now = wall_seconds();

	list_foreach (t, &svc->tokens.all, link)
		if (!strcmp(t->name, name) && lives(t, now))
			found = t;
	return found;
}

static bool full(const struct service *svc)
{
	const struct service_token *t;
	double now = wall_seconds();
	size_t n = 0;

	list_foreach (t, &svc->tokens.all, link)
		n += lives(t, now);
	return n >= TOKENS_MAX;
}

/* The registry drops them as well. */
static void forget_ended(struct service_tokens *all)
{
	struct service_token *t;
	double now = wall_seconds();
	size_t ended = 0;
	char key[2 * REGISTRY_DIGEST + 1];

	list_foreach (t, &all->all, link)
		ended += !lives(t, now);
	list_foreach (t, &all->all, link) {
		if (ended <= TOKENS_ENDED_MAX)
			break;
		if (lives(t, now))
			continue;
		digest_key(t->digest, key);
		(void)map_remove(&all->by_digest, key);
		token_free(t);
		ended--;
	}
}

void service_token_add(struct service *svc, const struct token_request *rq, token_done done,
		       void *ctx)
{
	struct minting *m = minting_new(svc, done, ctx);
	struct token_row row = { .name = rq->name,
				 .tenant = rq->tenant,
				 .read_only = rq->read_only,
				 .created_at = wall_seconds() };

	forget_ended(&svc->tokens);
	if (rq->expires_in > 0)
		row.expires_at = row.created_at + rq->expires_in;
	if (find_named(svc, rq->name))
		refuse(&m->no, 409, "exists", "A token of that name lives: %s", rq->name);
	else if (full(svc))
		refuse(&m->no, 429, NULL, "There are %d tokens, no more are allowed", TOKENS_MAX);
	else
		mint(m, &row);
	if (!m->no.status)
		service_note(svc, NULL, "token_added", "name=%s tenant=%s read_only=%d", rq->name,
			     rq->tenant ? rq->tenant : "-", rq->read_only);
	begin(m);
}

/* All living ones of that name get an end. */
static void end_named(struct minting *m, const char *name, double now, double overlap)
{
	const struct service_token *t;

	list_foreach (t, &m->service->tokens.all, link) {
		struct token_row row = row_of(t);

		if (strcmp(t->name, name) != 0 || !lives(t, now))
			continue;
		if (overlap <= 0)
			row.revoked_at = now;
		else if (row.expires_at <= 0 || row.expires_at > now + overlap)
			row.expires_at = now + overlap;
		(void)add_row(m, &row);
	}
}

void service_token_rotate(struct service *svc, const char *name, double overlap, token_done done,
			  void *ctx)
{
	struct minting *m = minting_new(svc, done, ctx);
	const struct service_token *old = find_named(svc, name);
	double now = wall_seconds();
	struct token_row row;

	forget_ended(&svc->tokens);
	if (!old) {
		refuse(&m->no, 404, NULL, "No such token: %s", name);
	} else if (full(svc)) {
		refuse(&m->no, 429, NULL, "There are %d tokens, no more are allowed", TOKENS_MAX);
	} else {
		row = row_of(old);
		/* It lives as long as the old one was meant to. */
		if (row.expires_at > 0)
			row.expires_at += now - row.created_at;
		row.created_at = now;
		row.last_used_at = 0;
		mint(m, &row);
		end_named(m, name, now, overlap);
		service_note(svc, NULL, "token_rotated", "name=%s overlap=%.0f", name, overlap);
	}
	begin(m);
}

void service_token_revoke(struct service *svc, const char *name, token_done done, void *ctx)
{
	struct minting *m = minting_new(svc, done, ctx);

	end_named(m, name, wall_seconds(), 0);
	if (!m->n)
		refuse(&m->no, 404, NULL, "No such token: %s", name);
	else
		service_note(svc, NULL, "token_revoked", "name=%s", name);
	begin(m);
}

void service_tokens(struct service *svc, void (*each)(void *ctx, const struct token_info *t),
		    void *ctx)
{
	const struct service_token *t;
	double now = wall_seconds();

	list_foreach (t, &svc->tokens.all, link) {
		const struct token_row row = row_of(t);
		const struct token_info info = info_of(&row, now);

		each(ctx, &info);
	}
}
