/* The two protocols: whatever a frame holds, decoders stay inside and say no; what they accept
 * comes out the same when it is encoded again. */
#include <string.h>

#include "base/mem.h"
#include "fuzz.h"
#include "proto/engine.h"
#include "proto/init.h"

static uint8_t frame[INIT_FRAME_MAX];

/* What g holds behind its header, against what p was given. */
static void same(const struct put *p, const uint8_t *data, size_t n)
{
	CHECK(!p->bad && p->len == n && !memcmp(p->buf, data, n));
}

static void strings(const uint8_t *data, size_t n, uint32_t argc, uint32_t envc)
{
	char **argv = NULL, **envp = NULL;

	if (!init_strings(data, n, argc, envc, &argv, &envp))
		return;
	for (uint32_t i = 0; i < argc; i++)
		CHECK(strlen(argv[i]) <= INIT_STRING_MAX);
	for (uint32_t i = 0; i < envc; i++)
		CHECK(envp[i][0] != '=' && strchr(envp[i], '='));
	CHECK(!argv[argc] && !envp[envc]);
	free(argv);
	free(envp);
}

static void init_bodies(const uint8_t *data, size_t n)
{
	struct init_run run;
	struct init_exit e;
	struct put p;
	struct get g;

	get_init(&g, data, n);
	if (init_get_run(&g, &run)) {
		CHECK(run.argc <= INIT_ARGC_MAX && run.strings_bytes <= INIT_STRINGS_MAX);
		if (run.strings) {
			CHECK(run.strings >= data && run.strings + run.strings_bytes <= data + n);
			strings(run.strings, run.strings_bytes, run.argc, run.envc);
		}
		put_init(&p, frame, sizeof(frame));
		init_put_run(&p, &run);
		same(&p, data, n);
	}
	get_init(&g, data, n);
	if (init_get_exit(&g, &e)) {
		put_init(&p, frame, sizeof(frame));
		init_put_exit(&p, &e);
		same(&p, data, n);
	}
}

static void engine_bodies(const uint8_t *data, size_t n)
{
	struct engine_open o;
	struct engine_hello h;
	struct engine_opened d;
	struct engine_usage u;
	struct engine_workspace w;
	struct engine_limits l;
	struct put p;
	struct get g;

	get_init(&g, data, n);
	put_init(&p, frame, sizeof(frame));
	if (engine_get_open(&g, &o)) {
		CHECK(strlen(o.id) <= ENGINE_ID_MAX && o.n_volumes <= ENGINE_VOLUMES_MAX);
		engine_put_open(&p, &o);
		same(&p, data, n);
	}
	get_init(&g, data, n);
	put_init(&p, frame, sizeof(frame));
	if (engine_get_hello(&g, &h)) {
		engine_put_hello(&p, &h);
		same(&p, data, n);
	}
	get_init(&g, data, n);
	put_init(&p, frame, sizeof(frame));
	if (engine_get_opened(&g, &d)) {
		engine_put_opened(&p, &d);
		same(&p, data, n);
	}
	get_init(&g, data, n);
	put_init(&p, frame, sizeof(frame));
	if (engine_get_usage(&g, &u)) {
		engine_put_usage(&p, &u);
		same(&p, data, n);
	}
	get_init(&g, data, n);
	put_init(&p, frame, sizeof(frame));
	if (engine_get_workspace(&g, &w)) {
		CHECK(strlen(w.id) <= ENGINE_ID_MAX);
		engine_put_workspace(&p, &w);
		same(&p, data, n);
	}
	get_init(&g, data, n);
	put_init(&p, frame, sizeof(frame));
	if (engine_get_limits(&g, &l)) {
		CHECK(l.which && l.which < ENGINE_LIMIT_DISK);
		engine_put_limits(&p, &l);
		same(&p, data, n);
	}
}

/* The first bytes are a program of reads over the rest. */
static void cursor(const uint8_t *data, size_t n)
{
	size_t ops = MIN(n / 2, (size_t)32), k;
	const uint8_t *rest = data + ops, *p;
	uint8_t buf[64];
	struct get g;

	get_init(&g, rest, n - ops);
	for (size_t i = 0; i < ops; i++) {
		switch (data[i] % 8) {
		case 0:
			(void)get_u8(&g);
			break;
		case 1:
			(void)get_u16(&g);
			break;
		case 2:
			(void)get_u32(&g);
			break;
		case 3:
			(void)get_u64(&g);
			break;
		case 4:
			get_bytes(&g, buf, data[i] % sizeof(buf));
			break;
		case 5:
			p = get_blob(&g, data[i], &k);
			CHECK(!p || g.bad || (p >= rest && p + k <= data + n && k <= data[i]));
			break;
		case 6:
			CHECK(strlen(get_str(&g, data[i])) <= data[i]);
			break;
		default:
			p = get_rest(&g, &k);
			CHECK(!k || (p >= rest && p + k == data + n));
		}
		CHECK(g.at <= g.len);
	}
	(void)get_done(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	struct init_header h;
	struct get g;

	if (n > INIT_FRAME_MAX)
		return 0;
	if (init_parse(&g, data, n, &h))
		CHECK(h.length == n);
	init_bodies(data, n);
	engine_bodies(data, n);
	if (n > 2)
		strings(data + 2, n - 2, data[0] % 32, data[1] % 32);
	cursor(data, n);
	return 0;
}
