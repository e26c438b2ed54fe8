#include "proto/engine.h"

void engine_begin(struct put *p, void *buf, uint16_t type, uint64_t request)
{
	init_begin(p, buf, type, request);
	p->cap = ENGINE_FRAME_MAX;
}

bool engine_parse(struct get *g, const void *frame, size_t n, struct init_header *ret)
{
	return init_parse(g, frame, n, ret);
}

void engine_put_open(struct put *p, const struct engine_open *o)
{
	put_str(p, o->id);
	put_str(p, o->runtime);
	put_str(p, o->work_dir);
	put_str(p, o->hostname);
	put_bytes(p, o->nonce, INIT_NONCE);
	put_u32(p, o->flags);
	put_u8(p, o->network);
	put_u64(p, o->memory_bytes);
	put_u64(p, o->memory_swap_bytes);
	put_u32(p, o->cpu_millis);
	put_u32(p, o->cpu_shares);
	put_u32(p, o->pids);
	put_u64(p, o->tmpfs_bytes);
	put_u64(p, o->disk_bytes);
	put_u32(p, o->n_volumes);
	for (uint32_t i = 0; i < o->n_volumes && i < ENGINE_VOLUMES_MAX; i++) {
		put_str(p, o->volumes[i].inside);
		put_u8(p, o->volumes[i].read_only);
	}
}

bool engine_get_open(struct get *g, struct engine_open *ret)
{
	const uint32_t known = ENGINE_OPEN_CONNECTED | ENGINE_OPEN_EPHEMERAL | ENGINE_OPEN_ATTACH |
			       ENGINE_OPEN_FILES | ENGINE_OPEN_DURABLE;

	ret->id = get_str(g, ENGINE_ID_MAX);
	ret->runtime = get_str(g, ENGINE_ID_MAX);
	ret->work_dir = get_str(g, ENGINE_PATH_MAX);
	ret->hostname = get_str(g, ENGINE_ID_MAX);
	get_bytes(g, ret->nonce, INIT_NONCE);
	ret->flags = get_u32(g);
	ret->network = get_u8(g);
	ret->memory_bytes = get_u64(g);
	ret->memory_swap_bytes = get_u64(g);
	ret->cpu_millis = get_u32(g);
	ret->cpu_shares = get_u32(g);
	ret->pids = get_u32(g);
	ret->tmpfs_bytes = get_u64(g);
	ret->disk_bytes = get_u64(g);
	ret->n_volumes = get_u32(g);
	if (ret->n_volumes > ENGINE_VOLUMES_MAX)
		return false;
	for (uint32_t i = 0; i < ret->n_volumes; i++) {
		ret->volumes[i].inside = get_str(g, ENGINE_PATH_MAX);
		ret->volumes[i].read_only = get_u8(g);
		if (ret->volumes[i].read_only > 1)
			return false;
	}
	return get_done(g) && ret->network < ENGINE_NETS && !(ret->flags & ~known);
}

void engine_put_limits(struct put *p, const struct engine_limits *l)
{
	put_u64(p, l->handle);
	put_u8(p, l->which);
	put_u64(p, l->memory_bytes);
	put_u64(p, l->memory_swap_bytes);
	put_u32(p, l->cpu_millis);
	put_u32(p, l->cpu_shares);
	put_u32(p, l->pids);
}

bool engine_get_limits(struct get *g, struct engine_limits *ret)
{
	const uint8_t known = ENGINE_LIMIT_MEMORY | ENGINE_LIMIT_SWAP | ENGINE_LIMIT_CPUS |
			      ENGINE_LIMIT_SHARES | ENGINE_LIMIT_PIDS;

	ret->handle = get_u64(g);
	ret->which = get_u8(g);
	ret->memory_bytes = get_u64(g);
	ret->memory_swap_bytes = get_u64(g);
	ret->cpu_millis = get_u32(g);
	ret->cpu_shares = get_u32(g);
	ret->pids = get_u32(g);
	return get_done(g) && ret->which && !(ret->which & ~known);
}

void engine_put_hello(struct put *p, const struct engine_hello *h)
{
	put_u16(p, h->major);
	put_u16(p, h->minor);
	put_u8(p, h->cgroup);
	put_u8(p, h->networks);
	put_u8(p, h->limits);
	put_u8(p, h->seccomp);
	put_u64(p, h->max_memory_bytes);
	put_u32(p, h->max_cpu_millis);
	put_u32(p, h->max_pids);
	put_u32(p, h->max_sessions);
	put_u64(p, h->max_tmpfs_bytes);
}

bool engine_get_hello(struct get *g, struct engine_hello *ret)
{
	ret->major = get_u16(g);
	ret->minor = get_u16(g);
	ret->cgroup = get_u8(g);
	ret->networks = get_u8(g);
	ret->limits = get_u8(g);
	ret->seccomp = get_u8(g);
	ret->max_memory_bytes = get_u64(g);
	ret->max_cpu_millis = get_u32(g);
	ret->max_pids = get_u32(g);
	ret->max_sessions = get_u32(g);
	ret->max_tmpfs_bytes = get_u64(g);
	return get_done(g);
}

void engine_put_opened(struct put *p, const struct engine_opened *o)
{
	put_u64(p, o->handle);
	put_u32(p, o->pid);
	put_u64(p, o->start_time);
	put_u64(p, o->pid_namespace);
	put_u32(p, o->build_us);
	put_u8(p, o->layer);
}

bool engine_get_opened(struct get *g, struct engine_opened *ret)
{
	ret->handle = get_u64(g);
	ret->pid = get_u32(g);
	ret->start_time = get_u64(g);
	ret->pid_namespace = get_u64(g);
	ret->build_us = get_u32(g);
	ret->layer = get_u8(g);
	return get_done(g) && ret->layer < ENGINE_LAYERS;
}

void engine_put_usage(struct put *p, const struct engine_usage *u)
{
	put_u64(p, u->memory_bytes);
	put_u64(p, u->memory_limit_bytes);
	put_u64(p, u->cpu_us);
	put_u64(p, u->pids);
	put_u64(p, u->oom_kills);
	put_u64(p, u->io_read_bytes);
	put_u64(p, u->io_written_bytes);
	put_u64(p, u->disk_bytes);
}

bool engine_get_usage(struct get *g, struct engine_usage *ret)
{
	ret->memory_bytes = get_u64(g);
	ret->memory_limit_bytes = get_u64(g);
	ret->cpu_us = get_u64(g);
	ret->pids = get_u64(g);
	ret->oom_kills = get_u64(g);
	ret->io_read_bytes = get_u64(g);
	ret->io_written_bytes = get_u64(g);
	ret->disk_bytes = get_u64(g);
	return get_done(g);
}

void engine_put_workspace(struct put *p, const struct engine_workspace *w)
{
	put_str(p, w->id);
	put_u64(p, w->bytes);
	put_u64(p, w->files);
	put_u64(p, w->used_ms);
	put_u64(p, w->layer_ms);
	put_u8(p, w->ours);
	put_u8(p, w->partial);
}

bool engine_get_workspace(struct get *g, struct engine_workspace *ret)
{
	ret->id = get_str(g, ENGINE_ID_MAX);
	ret->bytes = get_u64(g);
	ret->files = get_u64(g);
	ret->used_ms = get_u64(g);
	ret->layer_ms = get_u64(g);
	ret->ours = get_u8(g);
	ret->partial = get_u8(g);
	return get_done(g) && ret->partial <= 1 && ret->ours <= 1;
}
