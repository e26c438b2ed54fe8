#include "core/policy.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "core/event_log.h"
#include "core/policy_body.h"
#include "core/service_impl.h"

#define FILE_MAX (1u << 20)
#define BY_FILE "overrides file"

struct change {
	struct list link; /* policy.waiting */
	struct service *service;
	json_t *body, *overlay; /* overlay: with it, as it is being recorded */
	struct policy_draft draft;
	char *by, *file;
	policy_done done;
	void *ctx;
};

void policy_init(struct policy *p)
{
	list_init(&p->waiting);
	p->file = xstrdup("");
	p->seen = xstrdup("");
}

static void change_free(struct change *ch)
{
	list_remove(&ch->link);
	policy_draft_release(&ch->draft);
	json_decref(ch->body);
	json_decref(ch->overlay);
	free(ch->by);
	free(ch->file);
	free(ch);
}

void policy_release(struct policy *p)
{
	struct change *ch;

	list_foreach (ch, &p->waiting, link)
		change_free(ch);
	json_decref(p->overlay);
	free(p->file);
	free(p->seen);
}

/* ---- limits of sessions ---- */

struct box_limits policy_limits(const struct service *svc, const struct runtime_entry *r)
{
	const struct config *c = svc->config;
	double cpus = config_cpus(c, r);
	int64_t shares = config_cpu_shares(c, r), pids = config_pids_limit(c, r);

	return (struct box_limits){ .memory_bytes = config_bytes(config_mem_limit(c, r)),
				    .memory_swap_bytes = config_bytes(config_memswap_limit(c, r)),
				    .cpu_millis = cpus > 0 ? (uint32_t)(cpus * 1000) : 0,
				    .cpu_shares = shares > 0 ? (uint32_t)shares : 0,
				    .pids = pids > 0 ? (uint32_t)pids : 0 };
}

static unsigned limits_differ(const struct box_limits *a, const struct box_limits *b)
{
	bool memory = a->memory_bytes != b->memory_bytes;
	/* Without a number of its own it is as memory, and changes with it. */
	bool swap =
		a->memory_swap_bytes != b->memory_swap_bytes || (memory && !a->memory_swap_bytes);

	return (memory ? BOX_MEMORY : 0) | (swap ? BOX_SWAP : 0) |
	       (a->cpu_millis != b->cpu_millis ? BOX_CPUS : 0) |
	       (a->cpu_shares != b->cpu_shares ? BOX_SHARES : 0) |
	       (a->pids != b->pids ? BOX_PIDS : 0);
}

/* A session that is given other limits; it may be gone before the answer. */
struct limiting {
	struct service *service;
	char *id;
	uint64_t generation, since_us;
	unsigned which;
};

static void on_limited(void *ctx, const struct garret_error *err)
{
	struct limiting *l = ctx;
	struct session *s = find_session(l->service, l->id);

	if (err && s && s->generation == l->generation) {
		/* What is in use now, or away, may be there when the policy changes next. */
		if (err->code == GARRET_CONFLICT || err->code == GARRET_UNAVAILABLE)
			s->limits_due |= l->which;
		log_warn("limits_failed", "session=%s %s", l->id, err->msg);
		event_add(s, "limits", err->msg, false,
			  err->code == GARRET_CONFLICT ? "in use" : "refused",
			  (double)(now_us() - l->since_us) / 1000);
	} else if (!err) {
		log_info("limits_changed", "session=%s", l->id);
	}
	free(l->id);
	free(l);
}

static void limit_session(struct session *s)
{
	struct service *svc = s->service;
	struct box_limits now = policy_limits(svc, s->runtime);
	struct limiting *l;

	if (!s->limits_due || s->state != SESSION_OPEN || !s->box || s->dead)
		return;
	l = xnew(struct limiting);
	*l = (struct limiting){ svc, xstrdup(s->id), s->generation, now_us(), s->limits_due };
	svc->ops->limits(s->box, s->limits_due, &now, on_limited, l);
	s->limits_due = 0;
}

void policy_session_opened(struct session *s)
{
	limit_session(s);
}

/* ---- in force ---- */

static void take_string(char **at, const char *now)
{
	char *before = *at;

	if (now == before)
		return;
	*at = now ? xstrdup(now) : NULL;
	free(before);
}

static void take_runtime(struct runtime_entry *r, const struct runtime_entry *draft)
{
	take_string(&r->mem_limit, draft->mem_limit);
	take_string(&r->memswap_limit, draft->memswap_limit);
	r->cpus = draft->cpus;
	r->cpu_shares = draft->cpu_shares;
	r->pids_limit = draft->pids_limit;
}

/* The draft's strings are of the change, or the ones that are there. */
static void take_draft(struct config *c, const struct policy_draft *d)
{
	for (const struct json_field *f = policy_fields; f->name; f++) {
		void *to = (char *)c + f->offset;
		const void *from = (const char *)&d->config + f->offset;

		if (f->kind == JSON_KIND_INT)
			*(int64_t *)to = *(const int64_t *)from;
		else if (f->kind == JSON_KIND_FLOAT)
			*(double *)to = *(const double *)from;
		else if (f->kind != JSON_KIND_TABLE)
			take_string(to, *(char *const *)from);
	}
	for (unsigned i = 0; i < c->n_runtimes; i++)
		take_runtime(&c->runtimes[i], &d->config.runtimes[i]);
}

static void enforce(struct service *svc, const struct policy_draft *d)
{
	autofree struct box_limits *before = xcalloc(svc->n_sessions + 1, sizeof(*before));
	struct session *s;
	size_t i = 0;

	list_foreach (s, &svc->sessions, link)
		before[i++] = policy_limits(svc, s->runtime);
	take_draft(svc->config, d);
	i = 0;
	list_foreach (s, &svc->sessions, link) {
		struct box_limits now = policy_limits(svc, s->runtime);

		s->limits_due |= limits_differ(&before[i++], &now);
		limit_session(s);
	}
}

/* ---- changes, one after the other ---- */

static json_t *overlay_with(const json_t *overlay, const json_t *change)
{
	json_t *sum = overlay ? json_deep_copy(overlay) : json_object();

	(void)json_object_update_recursive(sum, (json_t *)(uintptr_t)change);
	return sum;
}

static void begin_next(struct loop_later *l);

static void schedule(struct service *svc)
{
	struct policy *p = &svc->policy;

	if (!p->recording && !list_empty(&p->waiting))
		loop_later_add(svc->loop, &p->next, begin_next, svc);
}

static void change_done(struct change *ch, const struct refusal *no, const struct json_errors *e)
{
	static const struct json_errors fine = JSON_ERRORS_INIT;
	struct service *svc = ch->service;
	policy_done done = ch->done;
	void *ctx = ch->ctx;

	change_free(ch);
	done(ctx, no, e ? e : &fine);
	schedule(svc);
}

static void on_recorded(void *ctx, const struct garret_error *err)
{
	struct change *ch = ctx;
	struct policy *p = &ch->service->policy;
	struct refusal no = { 0 };

	p->recording = false;
	if (err) {
		log_error("policy", "a change could not be recorded: %s", err->msg);
		refuse(&no, err->code == GARRET_NO_SPACE ? 507 : 503, NULL,
		       "Could not record the policy, it is as it was: %s", err->msg);
	} else {
		enforce(ch->service, &ch->draft);
		json_decref(p->overlay);
		p->overlay = take_ptr(&ch->overlay);
		free(p->file);
		p->file = take_ptr(&ch->file);
		service_note(ch->service, NULL, "policy", "by=%s", ch->by);
	}
	change_done(ch, &no, NULL);
}

static void record(struct change *ch)
{
	struct service *svc = ch->service;
	autofree char *change = json_dumps(ch->body, JSON_COMPACT);
	autofree char *overlay = NULL;
	struct policy_row row = {
		.at = wall_seconds(), .by = ch->by, .change = change, .file = ch->file
	};

	ch->overlay = overlay_with(svc->policy.overlay, ch->body);
	overlay = json_dumps(ch->overlay, JSON_COMPACT);
	row.overlay = overlay;
	svc->policy.recording = true;
	svc->registry_ops->policy_add(svc->registry, &row, on_recorded, ch);
}

static void begin_next(struct loop_later *l)
{
	struct service *svc = l->ctx;
	struct policy *p = &svc->policy;
	struct change *ch = list_entry(p->waiting.next, struct change, link);
	struct json_errors e = JSON_ERRORS_INIT;
	struct refusal no = { 0 };

	if (list_empty(&p->waiting) || p->recording)
		return;
	if (!ch->file)
		ch->file = xstrdup(p->file);
	if (policy_draft(svc->config, &p->bounds, ch->body, &ch->draft, &e, &no))
		record(ch);
	else
		change_done(ch, &no, &e);
	strbuf_release(&e.items);
}

/* file NULL: the overrides file that was read last stays what it is. */
static void add_change(struct service *svc, const json_t *body, const char *by, const char *file,
		       policy_done done, void *ctx)
{
	struct change *ch = xnew(struct change);

	ch->service = svc;
	ch->body = json_deep_copy(body);
	/* Without a meaning, and it would take back all that was said of runtimes. */
	if (json_is_null(json_object_get(ch->body, "runtimes")))
		(void)json_object_del(ch->body, "runtimes");
	ch->by = xstrdup(by);
	ch->file = file ? xstrdup(file) : NULL;
	ch->done = done;
	ch->ctx = ctx;
	list_append(&svc->policy.waiting, &ch->link);
	schedule(svc);
}

void service_set_policy(struct service *svc, const struct json_t *change, const char *by,
			policy_done done, void *ctx)
{
	add_change(svc, change, by, NULL, done, ctx);
}

/* ---- start ---- */

void policy_on_row(struct service *svc, const struct policy_row *row)
{
	struct policy *p = &svc->policy;

	json_decref(p->overlay);
	p->overlay = json_loads(row->overlay, 0, NULL);
	if (!json_is_object(p->overlay)) {
		log_error("policy", "what was recorded can't be read and is left out");
		json_decref(p->overlay);
		p->overlay = NULL;
	}
	free(p->file);
	free(p->seen);
	p->file = xstrdup(row->file);
	p->seen = xstrdup(row->file);
}

/*
 * Take a change without recording it; false with why.  One that was recorded long ago is what
 * sessions were opened with.
 */
static bool lay(struct service *svc, const json_t *change, bool sessions_too, char why[400])
{
	struct json_errors e = JSON_ERRORS_INIT;
	struct policy_draft draft;
	struct refusal no = { 0 };
	bool good = policy_draft(svc->config, &svc->policy.bounds, change, &draft, &e, &no);

	if (good) {
		if (sessions_too)
			enforce(svc, &draft);
		else
			take_draft(svc->config, &draft);
		policy_draft_release(&draft);
	} else {
		(void)snprintf(why, 400, "%.390s", e.n ? e.items.buf : no.detail);
	}
	strbuf_release(&e.items);
	return good;
}

/* A change of several things as changes of one thing each. */
static json_t *split(const json_t *change)
{
	json_t *parts = json_array(), *value, *entry;
	const char *key, *alias;

	json_object_foreach((json_t *)(uintptr_t)change, key, value)
	{
		if (strcmp(key, "runtimes") != 0) {
			(void)json_array_append_new(parts, json_pack("{s:O}", key, value));
			continue;
		}
		json_object_foreach(value, alias, entry)(void) json_array_append_new(
			parts, json_pack("{s:{s:O}}", "runtimes", alias, entry));
	}
	return parts;
}

/*
 * The settings may have changed since: a runtime is gone, a bound is lower.  What
 * can't be had any more is said and left out.  Parts may need each other (two
 * ceilings), so those that fail are tried again as long as another one succeeds.
 */
static void lay_parts(struct service *svc, const json_t *overlay)
{
	json_t *parts = split(overlay), *part;
	bool progress = true;
	char why[400];
	size_t i;

	while (progress) {
		progress = false;
		for (i = 0; i < json_array_size(parts); i++) {
			if (!lay(svc, json_array_get(parts, i), false, why))
				continue;
			(void)json_array_remove(parts, i--);
			progress = true;
		}
	}
	json_array_foreach(parts, i, part)
	{
		autofree char *text = json_dumps(part, JSON_COMPACT);

		(void)lay(svc, part, false, why);
		log_error("policy_skipped", "change=%s why=%s", text, why);
	}
	json_decref(parts);
}

void policy_start(struct service *svc)
{
	struct policy *p = &svc->policy;
	char why[400];

	if (p->overlay && !lay(svc, p->overlay, false, why))
		lay_parts(svc, p->overlay);
	policy_look_at_file(svc);
	p->started = true;
}

/* ---- the overrides file ---- */

static void see(struct policy *p, const char *stamp)
{
	free(p->seen);
	p->seen = xstrdup(stamp);
}

/* Its text, when it is another than the one that was looked at last; what can't be read is said once. */
static bool read_file(struct service *svc, struct strbuf *text)
{
	const char *path = svc->config->policy_overrides;
	struct policy *p = &svc->policy;
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	autofree char *stamp = NULL;
	struct stat st;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st) < 0) {
		if (errno != ENOENT && errno != p->file_errno)
			log_error("policy_file", "%s: %s", path, strerror(errno));
		p->file_errno = errno;
		return false;
	}
	p->file_errno = 0;
	stamp = xasprintf("%lld.%09ld %s", (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, path);
	if (!strcmp(stamp, p->seen))
		return false;
	see(p, stamp);
	if (!S_ISREG(st.st_mode) || st.st_size > FILE_MAX) {
		log_error("policy_file", "%s: not a file of at most %u bytes", path, FILE_MAX);
		return false;
	}
	strbuf_reserve(text, (size_t)st.st_size + 1);
	n = read_full(fd, text->buf, (size_t)st.st_size);
	if (n < 0) {
		log_error("policy_file", "%s: %s", path, strerror(errno));
		return false;
	}
	text->len = (size_t)n;
	text->buf[n] = '\0';
	return true;
}

static void on_file_taken(void *ctx, const struct refusal *no, const struct json_errors *e)
{
	const struct service *svc = ctx;

	if (e->n || no->status)
		log_error("policy_file", "%s is ignored: %.400s", svc->config->policy_overrides,
			  e->n ? e->items.buf : no->detail);
}

void policy_look_at_file(struct service *svc)
{
	autobuf struct strbuf text = STRBUF_INIT;
	struct json_problem problem;
	char why[400];
	json_t *body;

	if (!svc->config->policy_overrides || !read_file(svc, &text))
		return;
	body = json_read(&text, &problem);
	if (!body) {
		log_error("policy_file", "%s is ignored: %s", svc->config->policy_overrides,
			  problem.kind == JSON_EMPTY ? "it is empty" : problem.text);
		return;
	}
	/* At start it counts before anybody is served; that it is recorded may be later. */
	if (!svc->policy.started)
		(void)lay(svc, body, true, why);
	add_change(svc, body, BY_FILE, svc->policy.seen, on_file_taken, svc);
	json_done(body);
}
