/* Values, and the rows of an answer: also part of the module for PostgreSQL. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "db/db_impl.h"

struct db_value db_null(void)
{
	return (struct db_value){ .type = DB_NULL };
}

struct db_value db_int(int64_t i)
{
	return (struct db_value){ .type = DB_INT, .i = i };
}

struct db_value db_real(double r)
{
	return (struct db_value){ .type = DB_REAL, .r = r };
}

struct db_value db_text(const char *s)
{
	return (struct db_value){ .type = s ? DB_TEXT : DB_NULL, .p = s, .n = s ? strlen(s) : 0 };
}

struct db_value db_blob(const void *p, size_t n)
{
	return (struct db_value){ .type = DB_BLOB, .p = p, .n = n };
}

void db_rows_release(struct db_rows *r)
{
	free(r->cell);
	free(r->memory);
	*r = (struct db_rows)DB_ROWS_INIT;
}

const struct db_value *db_get(const struct db_rows *r, size_t row, size_t column)
{
	return &r->cell[row * r->columns + column];
}

const char *db_get_text(const struct db_rows *r, size_t row, size_t column)
{
	const struct db_value *v = db_get(r, row, column);

	if (v->type == DB_NULL)
		return NULL;
	return v->type == DB_TEXT ? v->p : "";
}

int64_t db_get_int(const struct db_rows *r, size_t row, size_t column)
{
	const struct db_value *v = db_get(r, row, column);

	if (v->type != DB_REAL)
		return v->i;
	/* 2^63 is a double, INT64_MAX isn't: a cast from there on has no meaning. */
	if (v->r >= 0x1p63)
		return INT64_MAX;
	return v->r >= -0x1p63 ? (int64_t)v->r : INT64_MIN;
}

double db_get_real(const struct db_rows *r, size_t row, size_t column)
{
	const struct db_value *v = db_get(r, row, column);

	return v->type == DB_INT ? (double)v->i : v->r;
}

void db_collect_begin(struct db_collector *c, struct db_rows *rows, size_t columns)
{
	*c = (struct db_collector){ .rows = rows, .memory = STRBUF_INIT };
	rows->columns = columns;
}

/* Until the end a text's place is its offset: the block may still move. */
void db_collect(struct db_collector *c, const struct db_value *v)
{
	struct db_rows *r = c->rows;
	struct db_value *at;
	const size_t n = r->rows;

	if (n == c->cap) {
		c->cap = n ? 2 * n : 16;
		r->cell = xrealloc(r->cell, c->cap * sizeof(*r->cell));
	}
	at = &r->cell[r->rows++];
	*at = *v;
	if (v->type != DB_TEXT && v->type != DB_BLOB)
		return;
	at->i = (int64_t)c->memory.len;
	strbuf_add(&c->memory, v->p, v->n);
	strbuf_addch(&c->memory, '\0');
}

void db_collect_end(struct db_collector *c)
{
	struct db_rows *r = c->rows;

	if (c->memory.len)
		r->memory = strbuf_detach(&c->memory, NULL);
	for (size_t i = 0; i < r->rows; i++) {
		struct db_value *v = &r->cell[i];

		if (v->type == DB_TEXT || v->type == DB_BLOB) {
			v->p = r->memory + v->i;
			v->i = 0;
		}
	}
	if (r->columns)
		r->rows /= r->columns;
}
