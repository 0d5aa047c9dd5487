// A client of the daemon in C: it stores what it has "computed" of a prompt, and finds it again.
//
//	cc -o example main.c && ./example SOCKET && ./example SOCKET
//
// It writes the few messages that it needs by hand, for machines in little-endian order.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct { size_t n; uint8_t b[1024]; } message;    // that is written
typedef struct { const uint8_t *at; uint64_t n; } value;  // that is read: bytes, or a number n

static void varint(message *m, uint64_t v) {
	for (; v > 127; v >>= 7) m->b[m->n++] = v | 128;
	m->b[m->n++] = v;
}
static void number(message *m, int field, uint64_t v) { varint(m, field << 3), varint(m, v); }
static void bytes(message *m, int field, const void *data, size_t n) {
	varint(m, field << 3 | 2), varint(m, n), memcpy(m->b + m->n, data, n), m->n += n;
}
static void text(message *m, int field, const char *s) { bytes(m, field, s, strlen(s)); }
static void nest(message *m, int field, const message *in) { bytes(m, field, in->b, in->n); }

static uint64_t readVarint(const uint8_t **p) {
	uint64_t v = 0;
	for (int shift = 0;; shift += 7, ++*p) {
		v |= (uint64_t)(**p & 127) << shift;
		if (**p < 128) return ++*p, v;
	}
}
// get finds the first field of a number in a message; an absent one is 0 and empty.
static value get(value m, uint64_t field) {
	for (const uint8_t *p = m.at, *end = p + m.n; p < end;) {
		uint64_t tag = readVarint(&p), n = readVarint(&p);
		value found = {p, n};
		if ((tag & 7) == 2) p += n; // else it is a number, which n is
		if (tag >> 3 == field) return found;
	}
	return (value){0};
}

static void fail(const char *what) { perror(what), exit(1); }

static void receive(int fd, void *to, size_t n) {
	for (ssize_t got; n > 0; to = (char *)to + got, n -= got)
		if ((got = read(fd, to, n)) <= 0) fail("the daemon has gone");
}
// ask sends a request and returns its answer.
static value ask(int fd, int operation, const message *m) {
	message request = {4, {0}};
	nest(&request, operation, m);
	uint32_t n = request.n - 4;
	memcpy(request.b, &n, 4);
	if (write(fd, request.b, request.n) != (ssize_t)request.n) fail("write");
	receive(fd, &n, 4);
	uint8_t *frame = malloc(n + 1);
	receive(fd, frame, n);
	value answer = {frame, n}, error = get(answer, 2), sentence = get(error, 2);
	if (error.n) fprintf(stderr, "refused: %.*s\n", (int)sentence.n, sentence.at), exit(1);
	return get(answer, operation);
}

enum { OPEN = 10, STEP = 11, WRITTEN = 1, RELEASES = 2, MATCHES = 3, RESERVES = 4 };

int main(int argc, char **argv) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", argc > 1 ? argv[1] : "");
	if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail(address.sun_path);
	message group = {0}, open_ = {0};
	text(&group, 1, "all layers"), number(&group, 4, 4096), number(&group, 4, 4096);
	number(&open_, 1, 1), text(&open_, 2, "example in C"), text(&open_, 3, "my-weights, float16");
	number(&open_, 4, 16), number(&open_, 5, 4096), nest(&open_, 6, &group);
	value pool = get(ask(fd, OPEN, &open_), 4), path = get(pool, 6);
	char *name = strndup((const char *)path.at, path.n);
	size_t size = get(pool, 4).n;
	int file = open(name, O_RDWR);
	uint8_t *memory = mmap(0, get(pool, 7).n, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (memory == MAP_FAILED) fail(name);

	int32_t tokens[4 * 16 + 5], page;
	for (int i = 0; i < 69; i++) tokens[i] = 1000 + i;
	// What is stored: its pages may be read until the release.
	message prompt = {0}, match = {0}, step = {0};
	bytes(&prompt, 1, tokens, sizeof tokens), nest(&match, 1, &prompt), nest(&step, MATCHES, &match);
	value found = get(ask(fd, STEP, &step), MATCHES), pages = get(found, 4);
	printf("%d of 69 tokens are stored\n", (int)get(found, 3).n);
	for (size_t i = 0; i < get(found, 3).n / 16; i++) {
		memcpy(&page, pages.at + 4 * i, 4);
		printf("block %zu begins with %d\n", i, memory[page * size]);
	}
	// Pages for the whole blocks that are not: write them, then say so.
	message whole = {0}, reserve = {0}, second = {0};
	if (get(found, 2).n) number(&second, RELEASES, get(found, 2).n);
	bytes(&whole, 1, tokens, 4 * 64), nest(&reserve, 1, &whole), nest(&second, RESERVES, &reserve);
	value write_ = get(ask(fd, STEP, &second), RESERVES);
	pages = get(write_, 4);
	if (get(write_, 2).n == 0) return 0; // all is stored
	for (int i = 0; i < 4; i++) {
		memcpy(&page, pages.at + 4 * i, 4);
		if (page >= 0) memory[page * size] = i + 1; // the keys and values of block i
	}
	message written = {0}, last = {0};
	number(&written, 1, get(write_, 2).n), number(&written, 2, 64);
	nest(&last, WRITTEN, &written), number(&last, RELEASES, get(write_, 2).n);
	ask(fd, STEP, &last);
	return 0;
}
