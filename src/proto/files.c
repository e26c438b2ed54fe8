#include "proto/files.h"

static void put_tag(struct put *p, const struct file_tag *t)
{
	put_u64(p, t->inode);
	put_u64(p, t->size);
	put_u64(p, t->mtime_ns);
	put_u64(p, t->ctime_ns);
}

static void get_tag(struct get *g, struct file_tag *t)
{
	t->inode = get_u64(g);
	t->size = get_u64(g);
	t->mtime_ns = get_u64(g);
	t->ctime_ns = get_u64(g);
}

void file_put_request(struct put *p, const struct file_request *rq)
{
	put_u8(p, rq->op);
	put_u32(p, rq->flags);
	put_u32(p, rq->timeout_ms);
	put_str(p, rq->path ? rq->path : "");
	put_str(p, rq->to ? rq->to : "");
	put_str(p, rq->pattern ? rq->pattern : "");
	put_str(p, rq->include ? rq->include : "");
	put_u64(p, rq->offset);
	put_u64(p, rq->length);
	put_u32(p, rq->mode);
	put_u32(p, rq->max_depth);
	put_u32(p, rq->max_entries);
	put_u64(p, rq->max_bytes);
	put_tag(p, &rq->tag);
}

bool file_get_request(struct get *g, struct file_request *ret)
{
	*ret = (struct file_request){ .op = get_u8(g) };
	ret->flags = get_u32(g);
	ret->timeout_ms = get_u32(g);
	ret->path = get_str(g, FILE_PATH_MAX);
	ret->to = get_str(g, FILE_PATH_MAX);
	ret->pattern = get_str(g, FILE_PATTERN_MAX);
	ret->include = get_str(g, FILE_PATTERN_MAX);
	ret->offset = get_u64(g);
	ret->length = get_u64(g);
	ret->mode = get_u32(g);
	ret->max_depth = get_u32(g);
	ret->max_entries = get_u32(g);
	ret->max_bytes = get_u64(g);
	get_tag(g, &ret->tag);
	return get_done(g) && ret->op >= FILE_STAT && ret->op < FILE_OPS &&
	       ret->flags < FILE_FLAGS_END && ret->mode <= 0777;
}

void file_put_info(struct put *p, const struct file_info *info)
{
	put_u8(p, info->type);
	put_u8(p, info->link);
	put_u32(p, info->mode);
	put_u32(p, info->uid);
	put_u32(p, info->gid);
	put_tag(p, &info->tag);
	put_str(p, info->name ? info->name : "");
	put_str(p, info->target ? info->target : "");
}

bool file_get_info(struct get *g, struct file_info *ret)
{
	*ret = (struct file_info){ .type = get_u8(g) };
	ret->link = get_u8(g);
	ret->mode = get_u32(g);
	ret->uid = get_u32(g);
	ret->gid = get_u32(g);
	get_tag(g, &ret->tag);
	ret->name = get_str(g, FILE_NAME_MAX);
	ret->target = get_str(g, FILE_PATH_MAX);
	return !g->bad && ret->type < FILE_TYPES && ret->link <= 1 && ret->mode <= 0777;
}

void file_put_match(struct put *p, const struct file_match *m)
{
	put_str(p, m->name ? m->name : "");
	put_u64(p, m->line);
	put_u32(p, m->column);
	put_u32(p, m->length);
	put_blob(p, m->text, m->text_bytes);
	put_u8(p, m->cut);
}

bool file_get_match(struct get *g, struct file_match *ret)
{
	size_t n;

	*ret = (struct file_match){ .name = get_str(g, FILE_NAME_MAX) };
	ret->line = get_u64(g);
	ret->column = get_u32(g);
	ret->length = get_u32(g);
	ret->text = get_blob(g, FILE_LINE_MAX, &n);
	ret->text_bytes = (uint32_t)n;
	ret->cut = get_u8(g);
	return !g->bad && ret->cut <= 1;
}

void file_put_end(struct put *p, const struct file_end *e)
{
	put_u32(p, e->code);
	put_u32(p, e->sys);
	put_u8(p, e->truncated);
	put_u64(p, e->count);
	put_u64(p, e->skipped);
	put_bytes(p, e->digest, sizeof(e->digest));
	put_str(p, e->path ? e->path : "");
	put_str(p, e->msg ? e->msg : "");
}

bool file_get_end(struct get *g, struct file_end *ret)
{
	*ret = (struct file_end){ .code = get_u32(g) };
	ret->sys = get_u32(g);
	ret->truncated = get_u8(g);
	ret->count = get_u64(g);
	ret->skipped = get_u64(g);
	get_bytes(g, ret->digest, sizeof(ret->digest));
	/* A resolved path may be longer than what can be asked for. */
	ret->path = get_str(g, 8 * FILE_PATH_MAX);
	ret->msg = get_str(g, 1024);
	return get_done(g) && ret->truncated <= 1;
}
