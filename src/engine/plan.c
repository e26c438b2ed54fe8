#include "engine/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/mem.h"
#include "engine/check.h"
#include "engine/mount.h"
#include "engine/store.h"
#include "engine/workspace.h"

void plan_init(struct plan *p, const struct engine_open *o, uint64_t tmpfs_bytes,
	       uint64_t disk_bytes)
{
	struct build_order *order = xnew(struct build_order);

	*p = (struct plan){ .order = order,
			    .init_fd = -EBADF,
			    .disk_bytes = disk_bytes,
			    .ephemeral = o->flags & ENGINE_OPEN_EPHEMERAL };
	order->flags = (o->flags & ENGINE_OPEN_CONNECTED ? BUILD_CONNECTED : 0) |
		       (o->network == ENGINE_NET_HOST ? BUILD_HOST_NET : 0) |
		       (o->flags & ENGINE_OPEN_FILES ? BUILD_FILES : 0);
	order->tmpfs_bytes = tmpfs_bytes;
	memcpy(order->nonce, o->nonce, sizeof(o->nonce));
	(void)snprintf(order->hostname, sizeof(order->hostname), "%s",
		       *o->hostname ? o->hostname : "garret");
	(void)snprintf(order->work_dir, sizeof(order->work_dir), "%s", o->work_dir);
}

void plan_done(struct plan *p)
{
	p->init_fd = fd_close(p->init_fd);
	for (uint32_t i = 0; p->order && i < p->order->n_mounts; i++)
		p->mounts[i] = fd_close(p->mounts[i]);
	free(p->order);
	p->order = NULL;
}

int plan_add_socket(struct plan *p, const struct engine_open *o, struct msg_fds *fds,
		    struct garret_error *err)
{
	int type = 0, listening = 0, domain = 0, fd = msg_fds_take(fds);
	socklen_t n = sizeof(int);

	p->init_fd = fd;
	if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &n) < 0 || domain != AF_UNIX ||
	    getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) < 0 || type != SOCK_SEQPACKET ||
	    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &n) < 0 ||
	    !listening != !!(o->flags & ENGINE_OPEN_CONNECTED))
		return garret_fail(err, GARRET_INVALID,
				   "the init socket is not of the kind announced");
	return 0;
}

static bool has_mount(const struct plan *p, const char *inside)
{
	for (uint32_t i = 0; i < p->order->n_mounts; i++)
		if (!strcmp(p->order->mounts[i].inside, inside))
			return true;
	return false;
}

/* A place for a mount; the descriptor follows when it is there. */
static struct build_mount *add_mount(struct plan *p, const char *inside, int fd, uint32_t uid,
				     uint32_t gid)
{
	struct build_mount *m = &p->order->mounts[p->order->n_mounts];

	p->mounts[p->order->n_mounts++] = fd;
	*m = (struct build_mount){ .uid = uid, .gid = gid };
	(void)snprintf(m->inside, sizeof(m->inside), "%s", inside);
	if (path_needs_own_root(inside))
		p->order->flags |= BUILD_OWN_ROOT;
	return m;
}

static int add_workspace(struct plan *p, struct engine *e, const struct engine_open *o,
			 struct garret_error *err)
{
	uint32_t uid, gid, project;
	autoclose int dir = workspace_open(e, o->id, o->flags & ENGINE_OPEN_ATTACH, p->disk_bytes,
					   &uid, &gid, &project, err);
	int fd;

	if (dir < 0)
		return dir;
	fd = mount_clone(dir, "", false, err);
	if (fd < 0)
		return fd;
	add_mount(p, o->work_dir, fd, uid, gid)->project = project;
	return 0;
}

/* The workspace of a file-only session: as it is, and nothing is made for it. */
static int add_view(struct plan *p, struct engine *e, const struct engine_open *o,
		    struct garret_error *err)
{
	uint32_t uid, gid;
	autoclose int dir = workspace_find(e, o->id, &uid, &gid, err);
	int fd;

	if (dir < 0)
		return dir;
	fd = mount_clone(dir, "", false, err);
	if (fd < 0)
		return fd;
	add_mount(p, o->work_dir, fd, uid, gid)->read_only = true;
	return 0;
}

int plan_add_host(struct plan *p, struct engine *e, const struct engine_open *o,
		  struct msg_fds *fds, int sock, const struct credentials *peer,
		  bool *ret_workspace, struct garret_error *err)
{
	int rc = 0;

	if (o->flags & ENGINE_OPEN_FILES)
		return add_view(p, e, o, err);
	for (uint32_t i = 0; i < o->n_volumes; i++) {
		autoclose int volume = msg_fds_take(fds);
		struct build_mount *m = add_mount(p, o->volumes[i].inside, -EBADF, 0, 0);
		int fd;

		m->read_only = o->volumes[i].read_only;
		fd = volume_clone(volume, sock, peer, m, err);
		if (fd < 0)
			return fd;
		p->mounts[p->order->n_mounts - 1] = fd;
	}
	if (!p->ephemeral && !has_mount(p, o->work_dir)) {
		rc = add_workspace(p, e, o, err);
		*ret_workspace = rc == 0;
	}
	return rc;
}

int plan_add_slot(struct plan *p, const struct engine *e, const char *slot,
		  struct garret_error *err)
{
	const struct {
		const char *name, *inside;
		bool wanted, file;
	} parts[] = {
		/* A workspace that nobody keeps is the slot's, and goes with it. */
		{ "work", p->order->work_dir, p->ephemeral, false },
		{ "home", "/home/agent", true, false },
		{ "vartmp", "/var/tmp", true, false },
		{ "hosts", "/etc/hosts", true, true },
	};
	const uint32_t owner = e->conf.id_start + SLOT_IDS - 1;

	if (p->order->flags & BUILD_FILES)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		struct build_mount *m;
		char path[64];
		int fd;

		if (!parts[i].wanted || has_mount(p, parts[i].inside))
			continue;
		(void)snprintf(path, sizeof(path), "%s/%s", slot, parts[i].name);
		fd = mount_clone(e->sessions_fd, path, false, err);
		if (fd < 0)
			return fd;
		m = add_mount(p, parts[i].inside, fd, owner, owner);
		m->file = m->read_only = parts[i].file;
	}
	return 0;
}

static int by_path(const void *a, const void *b)
{
	return strcmp(((const struct build_mount *)a)->inside,
		      ((const struct build_mount *)b)->inside);
}

/* Parents before children; the descriptors follow. */
static void sort_mounts(struct plan *p)
{
	struct build_order *o = p->order;
	struct build_mount sorted[MOUNTS_MAX];
	int fds[MOUNTS_MAX];

	memcpy(sorted, o->mounts, o->n_mounts * sizeof(sorted[0]));
	qsort(sorted, o->n_mounts, sizeof(sorted[0]), by_path);
	for (uint32_t i = 0; i < o->n_mounts; i++)
		for (uint32_t k = 0; k < o->n_mounts; k++)
			if (!strcmp(sorted[i].inside, o->mounts[k].inside))
				fds[i] = p->mounts[k];
	memcpy(o->mounts, sorted, o->n_mounts * sizeof(sorted[0]));
	memcpy(p->mounts, fds, o->n_mounts * sizeof(fds[0]));
}

int plan_send(struct plan *p, const struct engine *e, int sock, struct garret_error *err)
{
	struct build_order *o = p->order;
	int fds[MOUNTS_MAX + 1];

	o->filter = FILTER_NO_SUID;
	for (uint32_t i = 0; i < o->n_mounts; i++)
		if (!o->mounts[i].read_only && (o->mounts[i].uid == 0 || o->mounts[i].gid == 0))
			o->filter = FILTER_NO_SUID_SGID;
	if (o->flags & BUILD_FILES)
		o->filter = FILTER_FILES;
	if (e->conf.no_filter)
		o->filter = FILTER_NONE;
	sort_mounts(p);
	fds[0] = p->init_fd;
	memcpy(fds + 1, p->mounts, o->n_mounts * sizeof(fds[0]));
	return msg_send(sock, o, BUILD_ORDER_BYTES(o->n_mounts), fds, o->n_mounts + 1, err);
}
