/*
 * Leaf cgroups: one per run, used once (a cgroup that was killed or emptied in
 * its life is not worth the doubt), two kept ready because making one costs a
 * fifth of a short run.  A leaf in which processes live on that called setsid
 * lingers until they are gone.
 *
 * No cgroup file system is mounted inside: everything goes through the
 * descriptor that the engine handed to us.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/mem.h"
#include "base/time.h"
#include "init/session.h"

#define READY 2
#define FAILURES_MAX 3
#define RETRY_FIRST_MS 200
#define RETRY_LAST_MS 10000
#define RETRY_AT_ONCE 64 /* leaves tried in one go, so that pid 1 stays quick */

static void set_name(struct leaf *l, uint32_t number)
{
	static const char digits[] = "0123456789abcdef";
	int shift = 28;
	size_t n = 0;

	while (shift && !(number >> shift))
		shift -= 4;
	l->name[n++] = 'r';
	for (; shift >= 0; shift -= 4)
		l->name[n++] = digits[number >> shift & 15];
	l->name[n] = '\0';
}

/* "rN/file" */
static void set_path(char path[48], const struct leaf *l, const char *file)
{
	size_t n = strlen(l->name);

	memcpy(path, l->name, n);
	path[n] = '/';
	memcpy(path + n + 1, file, strlen(file) + 1);
}

static struct leaf *make(struct session *s)
{
	struct leaf *l;

	if (s->p.cgroup_fd < 0 || s->leaf_failures >= FAILURES_MAX)
		return NULL;
	l = xnew(struct leaf);
	list_init(&l->link);
	/* Names may be left over from an init before us in the same directory. */
	for (int i = 0; i < 16; i++) {
		set_name(l, ++s->last_leaf);
		if (mkdirat(s->p.cgroup_fd, l->name, 0755) == 0)
			break;
		if (errno != EEXIST || i == 15) {
			if (errno != EAGAIN) /* the bound of descendants: better later */
				s->leaf_failures++;
			free(l);
			return NULL;
		}
	}
	l->fd = openat(s->p.cgroup_fd, l->name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (l->fd < 0) {
		(void)unlinkat(s->p.cgroup_fd, l->name, AT_REMOVEDIR);
		free(l);
		return NULL;
	}
	return l;
}

struct leaf *leaf_take(struct session *s)
{
	struct leaf *l;

	if (list_empty(&s->ready_leaves))
		return make(s);
	l = list_entry(s->ready_leaves.next, struct leaf, link);
	list_remove(&l->link);
	s->n_ready_leaves--;
	return l;
}

void leaf_used(struct leaf *l)
{
	l->fd = fd_close(l->fd);
}

static bool try_remove(struct session *s, struct leaf *l)
{
	if (unlinkat(s->p.cgroup_fd, l->name, AT_REMOVEDIR) < 0 && errno == EBUSY)
		return false;
	list_remove(&l->link);
	free(l);
	return true;
}

static void on_retry(struct loop_timer *t)
{
	struct session *s = t->ctx;
	struct list *at = s->lingering_leaves.next;

	for (int i = 0; i < RETRY_AT_ONCE && at != &s->lingering_leaves; i++) {
		struct leaf *l = list_entry(at, struct leaf, link);

		at = at->next;
		if (try_remove(s, l))
			continue;
		l->procs = procs_in_leaf(s, l);
		list_remove(&l->link);
		list_append(&s->lingering_leaves, &l->link); /* the others' turn */
	}
	s->leaf_retry_ms = MIN(s->leaf_retry_ms * 2, RETRY_LAST_MS);
	if (!list_empty(&s->lingering_leaves))
		loop_timer_set(s->loop, t, now_ms() + s->leaf_retry_ms, on_retry, s);
}

void leaf_retry_soon(struct session *s)
{
	if (list_empty(&s->lingering_leaves))
		return;
	s->leaf_retry_ms = RETRY_FIRST_MS;
	if (!s->leaf_timer.index || s->leaf_timer.at_ms > now_ms() + RETRY_FIRST_MS)
		loop_timer_set(s->loop, &s->leaf_timer, now_ms() + RETRY_FIRST_MS, on_retry, s);
}

/*
 * After the answers of this round are out (so a round is let pass): the owner
 * works while we tidy up.
 */
static void on_later(struct loop_later *later)
{
	struct session *s = later->ctx;

	if (s->leaf_pause) {
		s->leaf_pause = false;
		loop_later_add(s->loop, later, on_later, s);
		return;
	}
	while (!list_empty(&s->used_leaves)) {
		struct leaf *l = list_entry(s->used_leaves.next, struct leaf, link);

		if (try_remove(s, l))
			continue;
		list_remove(&l->link);
		list_append(&s->lingering_leaves, &l->link);
		l->procs = procs_in_leaf(s, l);
		leaf_retry_soon(s);
	}
	leaf_prepare(s);
}

void leaf_retire(struct session *s, struct leaf *l)
{
	if (!l)
		return;
	l->fd = fd_close(l->fd);
	list_append(&s->used_leaves, &l->link);
	if (!s->leaf_later.queued)
		s->leaf_pause = true;
	loop_later_add(s->loop, &s->leaf_later, on_later, s);
}

void leaf_prepare(struct session *s)
{
	while (s->n_ready_leaves < READY) {
		struct leaf *l = make(s);

		if (!l)
			return;
		list_append(&s->ready_leaves, &l->link);
		s->n_ready_leaves++;
	}
}

bool leaf_freeze(struct session *s, const struct leaf *l, bool on)
{
	char path[48];

	set_path(path, l, "cgroup.freeze");
	return write_file_at(s->p.cgroup_fd, path, on ? "1" : "0") == 0;
}

bool leaf_frozen(struct session *s, const struct leaf *l)
{
	char path[48], buf[128];

	set_path(path, l, "cgroup.events");
	return read_file_at(s->p.cgroup_fd, path, buf, sizeof(buf)) > 0 && strstr(buf, "frozen 1");
}
