#include "daemon/state.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <pwd.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/auto.h"
#include "base/fd.h"
#include "base/mem.h"
#include "base/text.h"

void daemon_user(uid_t *ret_uid, gid_t *ret_gid)
{
	struct passwd *pw = getpwnam("garret");

	*ret_uid = pw && pw->pw_uid ? pw->pw_uid : DAEMON_FALLBACK_UID;
	*ret_gid = pw && pw->pw_gid ? pw->pw_gid : DAEMON_FALLBACK_UID;
}

static int make_parents(const char *dir, struct garret_error *err)
{
	autofree char *path = xstrdup(dir);

	for (char *p = path + 1;; p++) {
		char c = *p;

		if (c && c != '/')
			continue;
		*p = '\0';
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return garret_fail_errno(err, "GARRET_STATE_DIR: make %s", path);
		*p = c;
		if (!c)
			return 0;
	}
}

/*
 * The directory is garretd's, and root is at work: a second name of somebody else's
 * file there would be given away.
 */
static int give_lock(int fd, uid_t uid, gid_t gid, const char *state_dir, struct garret_error *err)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return garret_fail_errno(err, "look at %s/daemon/lock", state_dir);
	if (!S_ISREG(st.st_mode) || st.st_nlink != 1 || (st.st_uid != 0 && st.st_uid != uid))
		return garret_fail(err, GARRET_DENIED,
				   "%s/daemon/lock is no file of its own: remove it", state_dir);
	if (fchown(fd, uid, gid) < 0)
		return garret_fail_errno(err, "give %s/daemon/lock to uid %u", state_dir, uid);
	return 0;
}

int state_prepare(const char *state_dir, uid_t uid, gid_t gid, struct state *ret,
		  struct garret_error *err)
{
	struct state s = { .lock_fd = -EBADF };
	autoclose int top = -EBADF, dir = -EBADF, lock = -EBADF;
	int rc;

	rc = make_parents(state_dir, err);
	if (rc < 0)
		return rc;
	top = open(state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (top < 0)
		return garret_fail_errno(err, "GARRET_STATE_DIR: open %s", state_dir);
	dir = open_dir_make(top, "daemon", 0700, err);
	if (dir < 0)
		return garret_wrap(dir, err, "GARRET_STATE_DIR: %s", state_dir);
	if (geteuid() == 0 && (fchownat(dir, "", uid, gid, AT_EMPTY_PATH) < 0 ||
			       fchmodat(top, "daemon", 0700, 0) < 0))
		return garret_fail_errno(err, "GARRET_STATE_DIR: give %s/daemon to uid %u",
					 state_dir, uid);
	lock = openat(dir, "lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lock < 0)
		return garret_fail_errno(err, "open %s/daemon/lock", state_dir);
	if (flock(lock, LOCK_EX | LOCK_NB) < 0)
		return garret_fail(err, GARRET_CONFLICT, "another garretd is running on %s",
				   state_dir);
	rc = geteuid() == 0 ? give_lock(lock, uid, gid, state_dir, err) : 0;
	if (rc < 0)
		return rc;
	s.dir = xasprintf("%s/daemon", state_dir);
	s.lock_fd = take_fd(&lock);
	*ret = s;
	return 0;
}

/* Read NAME, or make it with these bytes: complete or not at all. */
static int read_or_make(int dir, const char *name, void *bytes, size_t n, bool *made,
			struct garret_error *err)
{
	char text[128];
	ssize_t got = read_file_at(dir, name, text, sizeof(text));
	autoclose int fd = -EBADF;

	*made = false;
	if (got == (ssize_t)n) {
		memcpy(bytes, text, n);
		return 0;
	}
	if (got >= 0)
		return garret_fail(
			err, GARRET_INTERNAL,
			"%s in the state directory has %zd bytes, not %zu: put back a copy, or remove it "
			"(all tokens end then)",
			name, got, n);
	if (errno != ENOENT)
		return garret_fail_errno(err, "read %s", name);
	fd = openat(dir, ".new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0 || write_full(fd, bytes, n) < 0 || fsync(fd) < 0 ||
	    renameat(dir, ".new", dir, name) < 0)
		return garret_fail_errno(err, "make %s", name);
	*made = true;
	return 0;
}

int state_load(struct state *s, bool want_token, struct garret_error *err)
{
	autoclose int dir = open(s->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint8_t random[32];
	char token[44];
	bool made;
	int rc;

	if (dir < 0 && errno == EACCES)
		return garret_fail(
			err, GARRET_DENIED,
			"GARRET_STATE_DIR: uid %u, which garretd runs as, can't enter %s: every directory above "
			"it needs the right to be searched (chmod o+x)",
			geteuid(), s->dir);
	if (dir < 0)
		return garret_fail_errno(err, "open %s", s->dir);
	if (getrandom(s->key, sizeof(s->key), 0) != (ssize_t)sizeof(s->key) ||
	    getrandom(random, sizeof(random), 0) != (ssize_t)sizeof(random))
		return garret_fail_errno(err, "random bytes");
	if (getrandom(s->owner, sizeof(s->owner), 0) != (ssize_t)sizeof(s->owner) ||
	    read_file_at(AT_FDCWD, "/proc/sys/kernel/random/boot_id", s->boot, sizeof(s->boot)) < 0)
		return garret_fail_errno(err, "the host's boot id");
	s->boot[strcspn(s->boot, "\n")] = '\0';
	rc = read_or_make(dir, "owner", s->owner, sizeof(s->owner), &made, err);
	if (rc == 0)
		rc = read_or_make(dir, "key", s->key, sizeof(s->key), &made, err);
	if (rc < 0 || !want_token)
		return rc;
	base64url_encode(random, sizeof(random), token);
	rc = read_or_make(dir, "token", token, sizeof(token) - 1, &s->token_is_new, err);
	if (rc == 0) {
		token[sizeof(token) - 1] = '\0';
		s->token = xstrdup(token);
	}
	return rc;
}

void state_release(struct state *s)
{
	free(s->dir);
	free(s->token);
	s->lock_fd = fd_close(s->lock_fd);
}

static int set_caps(uint32_t caps)
{
	struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct d[2] = { { .effective = caps, .permitted = caps } };

	return (int)syscall(SYS_capset, &h, d);
}

int drop_privileges(uid_t uid, gid_t gid, gid_t also, struct garret_error *err)
{
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0 ||
	    setgroups(also == (gid_t)-1 ? 0 : 1, &also) < 0 || setresgid(gid, gid, gid) < 0 ||
	    setresuid(uid, uid, uid) < 0 || set_caps(1u << CAP_NET_BIND_SERVICE) < 0 ||
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return garret_fail_errno(err, "give up root (to uid %u)", uid);
	if (setuid(0) == 0)
		return garret_fail(err, GARRET_INTERNAL, "root was given up but can be had back");
	return 0;
}

int drop_last_capability(struct garret_error *err)
{
	if (set_caps(0) < 0)
		return garret_fail_errno(err, "give up the last capability");
	return 0;
}
