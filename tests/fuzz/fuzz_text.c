/* Text from strangers: UTF-8 repair, JSON escapes, request targets, sizes and numbers. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "fuzz.h"
#include "net/http_internal.h"
#include "net/json.h"

/* Length of the well-formed sequence at p, or 0 and how many bytes make one U+FFFD. */
static size_t sequence(const uint8_t *p, size_t n, size_t *bad)
{
	static const struct {
		uint8_t first, last, low, high;
		size_t n;
	} rows[] = {
		{ 0x00, 0x7F, 0, 0, 1 },       { 0xC2, 0xDF, 0x80, 0xBF, 2 },
		{ 0xE0, 0xE0, 0xA0, 0xBF, 3 }, { 0xE1, 0xEC, 0x80, 0xBF, 3 },
		{ 0xED, 0xED, 0x80, 0x9F, 3 }, { 0xEE, 0xEF, 0x80, 0xBF, 3 },
		{ 0xF0, 0xF0, 0x90, 0xBF, 4 }, { 0xF1, 0xF3, 0x80, 0xBF, 4 },
		{ 0xF4, 0xF4, 0x80, 0x8F, 4 },
	};

	*bad = 1;
	for (size_t r = 0; r < ARRAY_SIZE(rows); r++) {
		if (p[0] < rows[r].first || p[0] > rows[r].last)
			continue;
		for (size_t i = 1; i < rows[r].n; i++) {
			uint8_t low = i == 1 ? rows[r].low : 0x80,
				high = i == 1 ? rows[r].high : 0xBF;

			if (i >= n || p[i] < low || p[i] > high)
				return 0;
			*bad = i + 1;
		}
		return rows[r].n;
	}
	return 0;
}

static void reference(const uint8_t *p, size_t n, struct strbuf *out, bool *ret_valid)
{
	*ret_valid = true;
	while (n) {
		size_t bad, k = sequence(p, n, &bad);

		if (k) {
			strbuf_add(out, p, k);
		} else {
			strbuf_addstr(out, "\xEF\xBF\xBD");
			*ret_valid = false;
			k = bad;
		}
		p += k;
		n -= k;
	}
}

/* The first byte says how the rest is cut into pieces. */
static void utf8(const uint8_t *p, size_t n, unsigned cut)
{
	struct strbuf want = STRBUF_INIT, got = STRBUF_INIT, escaped = STRBUF_INIT;
	struct utf8_repair u = { .n = 0 };
	struct json_text t = { .repair = { .n = 0 } };
	bool valid;

	reference(p, n, &want, &valid);
	CHECK(utf8_valid((const char *)p, n) == valid);
	for (size_t at = 0, k; at < n; at += k) {
		k = MIN(n - at, 1 + (cut + at * 7) % 9);
		utf8_repair_add(&u, &got, p + at, k);
		json_text_add(&t, &escaped, p + at, k);
	}
	utf8_repair_end(&u, &got);
	json_text_end(&t, &escaped);
	CHECK(got.len == want.len && !memcmp(got.buf, want.buf, got.len));
	/* In one piece the same, and nothing of it would end a JSON string. */
	strbuf_reset(&got);
	json_put_string_n(&got, (const char *)p, n);
	CHECK(got.len == escaped.len + 2 && !memcmp(got.buf + 1, escaped.buf, escaped.len));
	for (size_t i = 0; i < escaped.len; i++)
		CHECK((unsigned char)escaped.buf[i] >= 0x20);
	strbuf_release(&want);
	strbuf_release(&got);
	strbuf_release(&escaped);
}

static void target(const char *text)
{
	struct http_request rq = { .target = (char *)(uintptr_t)text };

	http_parse_target(&rq);
	CHECK(rq.path && utf8_valid(rq.path, strlen(rq.path)));
	for (unsigned i = 0; i < rq.n_params; i++) {
		CHECK(utf8_valid(rq.params[i].name, strlen(rq.params[i].name)));
		CHECK(utf8_valid(rq.params[i].value, strlen(rq.params[i].value)));
		free(rq.params[i].name);
		free(rq.params[i].value);
	}
	free(rq.params);
	free(rq.path);
}

static void numbers(const char *text)
{
	uint64_t u = 0;
	double d = 0;
	char hex[65];
	uint8_t bytes[16];
	struct strbuf out = STRBUF_INIT;

	if (parse_u64(text, &u))
		CHECK(strspn(text, "0123456789") == strlen(text));
	if (parse_size(text, &u))
		CHECK(u < 1ull << 63 && text[0] >= '0' && text[0] <= '9');
	if (parse_seconds(text, &d))
		CHECK(isfinite(d) && d >= 0);
	if (hex_decode(text, bytes, sizeof(bytes))) {
		hex_encode(bytes, sizeof(bytes), hex);
		CHECK(!strcmp(hex, text));
	}
	if (name_valid(text))
		CHECK(strlen(text) <= 64 && !strpbrk(text, "/ %\n") && text[0] != '.');
	CHECK(json_kind_matches(JSON_KIND_NAME, text) == name_valid(text));
	shell_quote(&out, text);
	CHECK(out.len >= strlen(text));
	strbuf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	char *text;

	if (!n)
		return 0;
	utf8(data + 1, n - 1, data[0]);
	text = xstrndup((const char *)data + 1, n - 1);
	target(text);
	numbers(text);
	free(text);
	return 0;
}
