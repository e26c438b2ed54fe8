/* GET / and GET /healthz: for people and for health checks, without a token. */
#include <stdlib.h>
#include <string.h>

#include "api/handlers.h"
#include "api/wire.h"
#include "base/auto.h"
#include "base/mem.h"

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void endpoints(struct strbuf *out)
{
	autofree const char **paths = NULL;
	size_t n = 0;

	for (const struct route *r = routes; r->path; r++)
		n++;
	paths = xcalloc(n, sizeof(*paths));
	n = 0;
	for (const struct route *r = routes; r->path; r++)
		if (strcmp(r->path, "/") != 0)
			paths[n++] = r->path;
	qsort(paths, n, sizeof(*paths), by_text);
	json_open(out, '[');
	for (size_t i = 0; i < n; i++)
		if (!i || strcmp(paths[i], paths[i - 1]) != 0)
			json_put_string(out, paths[i]);
	json_close(out, ']');
}

void index_root(struct call *c)
{
	struct strbuf out = STRBUF_INIT;

	json_open(&out, '{');
	json_put_key(&out, "service");
	json_put_string(&out, "sandboxd");
	json_put_key(&out, "health");
	wire_health(&out, c->service);
	json_put_key(&out, "docs_url");
	json_put_string(&out, "/docs");
	json_put_key(&out, "openapi_url");
	json_put_string(&out, "/openapi.json");
	json_put_key(&out, "ui_url");
	json_put_null(&out);
	json_put_key(&out, "endpoints");
	endpoints(&out);
	json_close(&out, '}');
	call_answer(c, 200, &out);
}

void index_health(struct call *c)
{
	struct strbuf out = STRBUF_INIT;

	wire_health(&out, c->service);
	call_answer(c, 200, &out);
}
