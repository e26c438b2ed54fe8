/* Frames as they should be, and as nobody should accept them. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "proto/engine.h"
#include "proto/init.h"

static uint8_t frame[INIT_FRAME_MAX];

static uint32_t encode_run(const char *const *strings, uint32_t argc, uint32_t envc)
{
	static uint8_t packed[4096];
	struct put s, p;
	struct init_run run = { .flags = 0, .argc = argc, .envc = envc, .cwd = "/w" };

	put_init(&s, packed, sizeof(packed));
	for (uint32_t i = 0; strings[i]; i++)
		put_str(&s, strings[i]);
	assert_false(s.bad);
	run.strings = packed;
	run.strings_bytes = (uint32_t)s.len;
	init_begin(&p, frame, INIT_RUN, 7);
	init_put_run(&p, &run);
	return init_end(&p);
}

static bool decode_run(uint32_t n, struct init_run *run)
{
	struct init_header h;
	struct get g;

	return init_parse(&g, frame, n, &h) && h.type == INIT_RUN && h.request == 7 &&
	       init_get_run(&g, run);
}

TEST(a_run_survives_the_way)
{
	static const char *const strings[] = { "sh", "-c", "", "A=B", NULL };
	uint32_t n = encode_run(strings, 3, 1);
	struct init_run run;
	char **argv, **envp;

	assert_true(decode_run(n, &run));
	assert_string_equal(run.cwd, "/w");
	assert_true(init_strings(run.strings, run.strings_bytes, run.argc, run.envc, &argv, &envp));
	assert_string_equal(argv[0], "sh");
	assert_string_equal(argv[2], "");
	assert_null(argv[3]);
	assert_string_equal(envp[0], "A=B");
	free(argv);
	free(envp);
}

TEST(every_truncation_of_a_run_is_refused)
{
	static const char *const strings[] = { "true", NULL };
	uint32_t n = encode_run(strings, 1, 0);
	struct init_run run;

	for (uint32_t i = 0; i < n; i++)
		assert_false(decode_run(i, &run));
	frame[n] = 0;
	assert_false(decode_run(n + 1, &run));
}

TEST(strings_that_disagree_with_their_counts_are_refused)
{
	static const struct {
		const char *const strings[4];
		uint32_t argc, envc;
	} rows[] = {
		{ { "a", "b" }, 1, 0 },       /* one too many */
		{ { "a" }, 2, 0 },            /* one too few */
		{ { "a", "novalue" }, 1, 1 }, /* no = */
		{ { "a", "=x" }, 1, 1 },      /* no name */
	};
	struct init_run run;
	char **argv, **envp;

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint32_t n = encode_run(rows[i].strings, rows[i].argc, rows[i].envc);

		assert_true(decode_run(n, &run));
		assert_false(init_strings(run.strings, run.strings_bytes, run.argc, run.envc, &argv,
					  &envp));
	}
}

TEST(a_nul_inside_a_string_is_refused)
{
	uint8_t buf[64];
	struct put p;
	struct get g;

	put_init(&p, buf, sizeof(buf));
	put_blob(&p, "a\0b", 3);
	put_u8(&p, 0);
	get_init(&g, buf, p.len);
	assert_string_equal(get_str(&g, 100), "");
	assert_true(g.bad);
}

TEST(an_open_survives_the_way_and_bounds_hold)
{
	struct engine_open o = { .id = "s-1",
				 .runtime = "host",
				 .work_dir = "/workspace",
				 .hostname = "h",
				 .network = ENGINE_NET_NONE,
				 .n_volumes = 1 };
	struct engine_open r;
	struct init_header h;
	struct put p;
	struct get g;
	uint32_t n;

	o.volumes[0] = (struct engine_volume){ "/data", 1 };
	engine_begin(&p, frame, ENGINE_OPEN, 1);
	engine_put_open(&p, &o);
	n = engine_end(&p);
	assert_true(engine_parse(&g, frame, n, &h) && engine_get_open(&g, &r));
	assert_string_equal(r.volumes[0].inside, "/data");

	o.network = ENGINE_NETS;
	engine_begin(&p, frame, ENGINE_OPEN, 1);
	engine_put_open(&p, &o);
	n = engine_end(&p);
	assert_true(engine_parse(&g, frame, n, &h));
	assert_false(engine_get_open(&g, &r));
}

TEST(new_limits_survive_the_way_and_name_only_what_there_is)
{
	static const struct {
		uint8_t which;
		bool good;
	} cases[] = { { ENGINE_LIMIT_MEMORY, true },
		      { 31, true },
		      { 0, false },
		      { ENGINE_LIMIT_DISK, false },
		      { 255, false } };
	struct engine_limits l = { 7, 0, 1ull << 30, 2ull << 30, 1500, 512, 99 }, r;
	struct init_header h;
	struct put p;
	struct get g;
	uint32_t n;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		l.which = cases[i].which;
		engine_begin(&p, frame, ENGINE_LIMITS, 1);
		engine_put_limits(&p, &l);
		n = engine_end(&p);
		assert_true(engine_parse(&g, frame, n, &h));
		assert_int_equal(engine_get_limits(&g, &r), cases[i].good);
	}
	assert_int_equal(r.handle, 7);
	assert_int_equal(r.memory_swap_bytes, 2ull << 30);
	assert_int_equal(r.pids, 99);
}

TEST_MAIN
