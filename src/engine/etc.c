#include "engine/etc.h"

#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/mem.h"
#include "engine/wire.h"

#define FILE_MAX_BYTES (8 * 1024 * 1024) /* ld.so.cache and certificate bundles are < 1 MiB */
#define DEPTH_MAX 8

const char etc_default[] =
	"ld.so.cache ld.so.conf ld.so.conf.d alternatives localtime timezone locale.alias "
	"default/locale ssl/certs ssl/openssl.cnf ca-certificates.conf pki/tls/certs "
	"crypto-policies os-release debian_version lsb-release profile profile.d bash.bashrc "
	"python* perl services protocols mime.types magic inputrc terminfo java* php vim fonts "
	"dpkg/origins pip.conf manpath.config npmrc";

static int copy_bytes(int in, int out)
{
	char buf[16 * 1024];
	ssize_t n;

	while ((n = read(in, buf, sizeof(buf))) > 0)
		if (write_full(out, buf, (size_t)n) < 0)
			return -1;
	return n < 0 ? -1 : 0;
}

static int copy_tree(int from, int to, const char *name, int depth, struct garret_error *err);

static int copy_dir(int from, int to, const char *name, int depth, struct garret_error *err)
{
	int fd = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	autoclose int made = -EBADF;
	struct dirent *e;

	if (!d || depth > DEPTH_MAX)
		return 0;
	if (mkdirat(to, name, 0755) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "make the directory %s", name);
	made = open_beneath(to, name, O_RDONLY | O_DIRECTORY, 0);
	if (made < 0)
		return garret_fail_errno(err, "open the directory %s", name);
	while ((e = readdir(d))) {
		int rc = 0;

		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			rc = copy_tree(dirfd(d), made, e->d_name, depth + 1, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int copy_file(int from, int to, const char *name, struct garret_error *err)
{
	autoclose int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	autoclose int out = -EBADF;
	struct stat st;

	if (in < 0 || fstat(in, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > FILE_MAX_BYTES)
		return 0;
	out = openat(to, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC,
		     st.st_mode & 0111 ? 0755 : 0644);
	if (out < 0 || copy_bytes(in, out) < 0)
		return garret_fail_errno(err, "copy %s", name);
	return 0;
}

static int copy_tree(int from, int to, const char *name, int depth, struct garret_error *err)
{
	char link[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (S_ISLNK(st.st_mode)) {
		n = readlinkat(from, name, link, sizeof(link) - 1);
		if (n < 0)
			return 0;
		link[n] = '\0';
		if (symlinkat(link, to, name) < 0 && errno != EEXIST)
			return garret_fail_errno(err, "copy the link %s", name);
		return 0;
	}
	/* A secret that not everybody reads on the host is nobody's business in a session. */
	if (S_ISDIR(st.st_mode) && (st.st_mode & 0005) == 0005)
		return copy_dir(from, to, name, depth, err);
	if (S_ISREG(st.st_mode) && st.st_mode & 0004)
		return copy_file(from, to, name, err);
	return 0;
}

/* a/b/c: the directories above are made, and the last part copied. */
static int copy_path(int from, int to, const char *path, struct garret_error *err)
{
	const char *slash = strchr(path, '/');
	autoclose int sub_from = -EBADF, sub_to = -EBADF;
	char head[NAME_MAX + 1];

	if (!slash)
		return copy_tree(from, to, path, 0, err);
	(void)snprintf(head, sizeof(head), "%.*s", (int)(slash - path), path);
	sub_from = openat(from, head, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (sub_from < 0)
		return 0;
	if (mkdirat(to, head, 0755) < 0 && errno != EEXIST)
		return garret_fail_errno(err, "make the directory %s", head);
	sub_to = open_beneath(to, head, O_RDONLY | O_DIRECTORY, 0);
	if (sub_to < 0)
		return garret_fail_errno(err, "open the directory %s", head);
	return copy_path(sub_from, sub_to, slash + 1, err);
}

static int copy_pattern(int from, int to, const char *pattern, struct garret_error *err)
{
	int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autodir DIR *d = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		int rc = 0;

		if (e->d_name[0] != '.' && fnmatch(pattern, e->d_name, FNM_PERIOD) == 0)
			rc = copy_tree(from, to, e->d_name, 0, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int copy_list(int to, const char *list, struct garret_error *err)
{
	autoclose int from = open("/etc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	autofree char *words = xstrdup(list);
	char *save = NULL;

	if (from < 0)
		return 0;
	for (char *w = strtok_r(words, " \t", &save); w; w = strtok_r(NULL, " \t", &save)) {
		int rc = strchr(w, '*') ? copy_pattern(from, to, w, err)
					: copy_path(from, to, w, err);

		if (rc < 0)
			return garret_wrap(rc, err, "copy /etc/%s", w);
	}
	return 0;
}

static int generate(int etc, const char *name, const char *text, struct garret_error *err)
{
	autoclose int fd = openat(etc, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0 || write_full(fd, text, strlen(text)) < 0)
		return garret_fail_errno(err, "write /etc/%s", name);
	return 0;
}

int etc_fill(int etc, const char *list, struct garret_error *err)
{
	const char *shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
	char passwd[512], resolv[4096];
	const struct {
		const char *name, *text;
	} files[] = {
		{ "passwd", passwd },
		{ "group", "root:x:0:\ntty:x:5:\nagent:x:1000:\nnogroup:x:65534:\n" },
		{ "hosts", "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" },
		{ "hostname", "garret\n" },
		{ "resolv.conf", resolv },
		{ "nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"
				   "networks: files\nservices: files\nprotocols: files\n" },
		/* The directories that a session works in belong to ids it may not know. */
		{ "gitconfig", "[safe]\n\tdirectory = *\n" },
		{ "machine-id", "" },
	};
	int rc = copy_list(etc, list, err);

	(void)snprintf(passwd, sizeof(passwd),
		       "root:x:0:0:root:/root:/usr/sbin/nologin\n"
		       "agent:x:%u:%u:agent:/home/agent:%s\n"
		       "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
		       MAIN_ID, MAIN_ID, shell);
	if (read_file_at(AT_FDCWD, "/etc/resolv.conf", resolv, sizeof(resolv)) < 0)
		resolv[0] = '\0';
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(files); i++)
		rc = generate(etc, files[i].name, files[i].text, err);
	return rc;
}
