/*
 * A main() for fuzz targets without libFuzzer.
 *
 *	fuzz-NAME CORPUS COUNT [SEED]
 *
 * Runs every file of the directory, then COUNT mutations of them; the same seed
 * makes the same mutations.  An input that ends the program badly is left in
 * the file that GARRET_FUZZ_LAST names.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/mem.h"
#include "fuzz.h"

#define INPUT_MAX 65536
#define SEEDS_MAX 512

static struct {
	uint8_t *data;
	size_t n;
} seeds[SEEDS_MAX];
static size_t n_seeds;
static uint64_t state;
static int last_fd = -1;

static uint64_t random_number(uint64_t below)
{
	/* xorshift64*: enough for this, and the same everywhere. */
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (state * 2685821657736338717u >> 11) % below;
}

static void run(const uint8_t *data, size_t n)
{
	uint8_t *exact = xmalloc(n ? n : 1); /* a sanitizer sees every byte too far */

	memcpy(exact, data, n);
	if (last_fd >= 0 && (ftruncate(last_fd, 0) < 0 || pwrite(last_fd, exact, n, 0) < 0))
		exit(2);
	(void)LLVMFuzzerTestOneInput(exact, n);
	free(exact);
}

static void load(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d)) && n_seeds < SEEDS_MAX) {
		static char buf[INPUT_MAX];
		ssize_t n = e->d_name[0] == '.'
				    ? -1
				    : read_file_at(dirfd(d), e->d_name, buf, sizeof(buf));

		if (n < 0)
			continue;
		seeds[n_seeds].data = xmemdup(buf, (size_t)n + 1);
		seeds[n_seeds++].n = (size_t)n;
	}
	if (d)
		(void)closedir(d);
}

/* A few changes in place; returns the new length. */
static size_t mutate(uint8_t *p, size_t n)
{
	static const uint8_t special[] = { 0,    1,    0x7F, 0x80, 0xFF, '"', '\\', '{',
					   '}',  '[',  ']',  ',',  ':',  ' ', '%',  '=',
					   0xC3, 0xED, 0xA0, 0xF4, '0',  '-', '.',  '\n' };

	for (uint64_t i = 1 + random_number(6); i; i--) {
		size_t at = (size_t)random_number(n + 1), k = (size_t)random_number(16) + 1;

		switch (random_number(6)) {
		case 0:
			if (at < n)
				p[at] = (uint8_t)random_number(256);
			break;
		case 1:
			if (at < n)
				p[at] = special[random_number(sizeof(special))];
			break;
		case 2: /* remove */
			k = MIN(k, n - at);
			memmove(p + at, p + at + k, n - at - k);
			n -= k;
			break;
		case 3: /* insert */
			if (n + k > INPUT_MAX)
				break;
			memmove(p + at + k, p + at, n - at);
			memset(p + at, special[random_number(sizeof(special))], k);
			n += k;
			break;
		case 4: /* a piece of another one */
		{
			size_t s = (size_t)random_number(n_seeds);

			k = MIN(seeds[s].n, INPUT_MAX - at);
			memcpy(p + at, seeds[s].data, k);
			n = MAX(n, at + k);
			break;
		}
		default:
			n = at ? at : n;
		}
	}
	return n;
}

int main(int argc, char **argv)
{
	const char *last = getenv("GARRET_FUZZ_LAST");
	static uint8_t buf[INPUT_MAX];
	unsigned long count;

	if (argc < 3)
		return 2;
	load(argv[1]);
	if (!n_seeds) {
		(void)fprintf(stderr, "no corpus in %s\n", argv[1]);
		return 2;
	}
	count = strtoul(argv[2], NULL, 10);
	state = argc > 3 ? strtoull(argv[3], NULL, 10)
			 : (uint64_t)time(NULL) * 1000 + (uint64_t)getpid();
	state = state ? state : 1;
	(void)printf("seed %llu, %zu files, %lu mutations\n", (unsigned long long)state, n_seeds,
		     count);
	(void)fflush(stdout);
	if (last)
		last_fd = open(last, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	for (size_t i = 0; i < n_seeds; i++)
		run(seeds[i].data, seeds[i].n);
	for (unsigned long i = 0; i < count; i++) {
		size_t s = (size_t)random_number(n_seeds), n = seeds[s].n;

		memcpy(buf, seeds[s].data, n);
		run(buf, mutate(buf, n));
	}
	for (size_t i = 0; i < n_seeds; i++)
		free(seeds[i].data);
	if (last_fd >= 0)
		(void)close(last_fd);
	return 0;
}
