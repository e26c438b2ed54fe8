#include "engine/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "base/mem.h"
#include "engine/check.h"
#include "engine/mount.h"
#include "engine/slots.h"
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

static int mount_workspace(struct plan *p, const char *work_dir, const struct workspace *w,
			   bool read_only, struct garret_error *err)
{
	int fd = mount_clone(w->fd, "", false, err);
	struct build_mount *m;

	if (fd < 0)
		return fd;
	m = add_mount(p, work_dir, fd, w->uid, w->gid);
	m->read_only = read_only;
	m->project = w->project;
	m->image = w->image;
	m->image_bytes = w->image_bytes;
	return 0;
}

static int add_workspace(struct plan *p, struct engine *e, const struct engine_open *o,
			 struct garret_error *err)
{
	const bool view = o->flags & ENGINE_OPEN_FILES; /* as it is, and nothing is made for it */
	struct workspace w = { .fd = -EBADF };
	int rc;

	if (view)
		rc = workspace_find(e, o->id, &w, err);
	else
		rc = workspace_open(e, o->id, o->flags & ENGINE_OPEN_ATTACH, p->disk_bytes, &w,
				    err);
	if (rc == 0)
		rc = mount_workspace(p, o->work_dir, &w, view, err);
	fd_close(w.fd);
	return rc;
}

int plan_add_host(struct plan *p, struct engine *e, const struct engine_open *o,
		  struct msg_fds *fds, int sock, const struct credentials *peer,
		  bool *ret_workspace, struct garret_error *err)
{
	int rc = 0;

	if (o->flags & ENGINE_OPEN_FILES)
		return add_workspace(p, e, o, err);
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

/* A directory of the slot's; or memory, where its space on the disk can't be bounded. */
static int slot_part(const struct plan *p, const struct engine *e, const struct slot *s,
		     const char *name, const char *mode, struct garret_error *err)
{
	char path[ENGINE_ID_MAX + 16], size[24], inodes[24], id[16];
	const struct mount_option options[] = { { "mode", mode },        { "size", size },
						{ "nr_inodes", inodes }, { "uid", id },
						{ "gid", id },           { NULL, NULL } };
	uint64_t bytes = MIN(p->disk_bytes, e->conf.max_tmpfs);

	if (mode && p->disk_bytes && !e->disk.quota) {
		(void)snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
		(void)snprintf(inodes, sizeof(inodes), "%llu",
			       (unsigned long long)(bytes / 1024 + 256));
		(void)snprintf(id, sizeof(id), "%u", s->base + MAIN_ID);
		return mount_new("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, err);
	}
	if (p->layer && mode) {
		(void)snprintf(path, sizeof(path), "%s/%s", p->layer, name);
		return mount_clone(e->layers_fd, path, false, err);
	}
	(void)snprintf(path, sizeof(path), "%s/%s", s->name, name);
	return mount_clone(e->sessions_fd, path, false, err);
}

int plan_add_slot(struct plan *p, const struct engine *e, const struct slot *s,
		  struct garret_error *err)
{
	const struct {
		const char *name, *inside, *mode; /* mode NULL: a file */
		bool wanted;
	} parts[] = {
		/* A workspace that nobody keeps is the slot's, and goes with it. */
		{ "work", p->order->work_dir, "0755", p->ephemeral },
		{ "home", "/home/agent", "0755", true },
		{ "vartmp", "/var/tmp", "1777", true },
		{ "hosts", "/etc/hosts", NULL, true },
	};
	const uint32_t owner = e->conf.id_start + SLOT_IDS - 1;

	if (p->order->flags & BUILD_FILES)
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		struct build_mount *m;
		int fd;

		if (!parts[i].wanted || has_mount(p, parts[i].inside))
			continue;
		fd = slot_part(p, e, s, parts[i].name, parts[i].mode, err);
		if (fd < 0)
			return fd;
		m = add_mount(p, parts[i].inside, fd, owner, owner);
		m->file = m->read_only = !parts[i].mode;
		m->plain = parts[i].mode && p->disk_bytes && !e->disk.quota;
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
