/* Requests for a server on this machine, from one thread, over connections that are kept alive.
 *
 *     load_generator PORT CONNECTIONS COUNT RATE FILE
 *
 * FILE has the requests as they are sent, whole, with a NUL byte behind each; they are sent in turn, over and over,
 * COUNT in all. A request is allowed at some moment and goes out on the connection that has been idle longest:
 *
 *     RATE 0       closed loop: all are allowed at once, so every connection sends as soon as it has its answer. The
 *                  latency of an answer counts from when its request was sent.
 *     RATE n       open loop: n a second are allowed, whatever the server does. The latency counts from the moment that
 *                  the request was allowed, so a server that falls behind cannot hide it.
 *
 * Answers are read by their Content-Length. An error is a status that is not 2xx, or an answer of `null`; the first one
 * is shown on stderr. What should never happen (a connection that ends, an answer that cannot be read, none for a
 * minute) ends the program with 1. Otherwise it prints one JSON object; latencies are in milliseconds.
 */

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 1 << 16, EVENTS = 256, STATUSES = 600, PATIENCE = 60 /* seconds */ };
static const uint64_t SECOND = 1000 * 1000 * 1000;

typedef struct {
    const char *bytes;
    size_t length;
} Request;

typedef struct {
    int socket;
    uint64_t since;  /* from when the latency of the answer counts, in nanoseconds */
    size_t have;     /* bytes of the answer that are here */
    char answer[BUFFER + 1];
} Connection;

typedef struct {
    Connection **ring;  /* idle connections: the one that has been so longest is at `first` */
    size_t size, first, count;
} Idle;

typedef struct {
    size_t count, errors, empty, statuses[STATUSES];
    uint32_t *latencies;  /* in microseconds */
    uint64_t last;        /* when the last answer came; before it, when all began */
} Outcome;

static void die(const char *format, ...) {
    va_list given;
    va_start(given, format);
    fputs("load_generator: ", stderr);
    vfprintf(stderr, format, given);
    fputc('\n', stderr);
    exit(1);
}

static void *allocate(size_t count, size_t size) {
    void *memory = calloc(count ? count : 1, size);
    if (memory == NULL) die("no memory");
    return memory;
}

static uint64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static struct timespec as_timespec(uint64_t nanoseconds) {
    return (struct timespec){(time_t)(nanoseconds / SECOND), (long)(nanoseconds % SECOND)};
}

/* --- what is sent ------------------------------------------------------------------------------------------------- */

static Request *read_requests(const char *path, size_t *count) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0) die("%s: %s", path, strerror(errno));
    size_t size = (size_t)ftell(file);
    char *bytes = allocate(size, 1);
    rewind(file);
    if (fread(bytes, 1, size, file) != size) die("%s cannot be read", path);
    fclose(file);

    *count = 0;
    for (size_t at = 0; at < size; at++) *count += bytes[at] == '\0';
    if (*count == 0 || bytes[size - 1] != '\0') die("%s: a NUL byte goes behind every request", path);
    Request *requests = allocate(*count, sizeof *requests);
    for (size_t each = 0; each < *count; each++) {
        requests[each] = (Request){bytes, strlen(bytes)};
        bytes += requests[each].length + 1;
    }
    return requests;
}

static int connect_to(uint16_t port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int yes = 1, found = socket(AF_INET, SOCK_STREAM, 0);
    if (found < 0 || connect(found, (struct sockaddr *)&address, sizeof address) != 0)
        die("cannot connect to port %u: %s", port, strerror(errno));
    setsockopt(found, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    return found;
}

static void send_request(Connection *connection, Request request, uint64_t since) {
    connection->since = since;
    connection->have = 0;
    /* Nothing else is on its way on this connection, so the socket takes all of it at once. */
    ssize_t sent = send(connection->socket, request.bytes, request.length, MSG_NOSIGNAL);
    if (sent != (ssize_t)request.length) die("a request could not be sent: %s", strerror(errno));
}

static void add_idle(Idle *idle, Connection *connection) {
    idle->ring[(idle->first + idle->count++) % idle->size] = connection;
}

static Connection *take_idle(Idle *idle) {
    Connection *taken = idle->ring[idle->first];
    idle->first = (idle->first + 1) % idle->size;
    idle->count--;
    return taken;
}

/* --- what comes back ---------------------------------------------------------------------------------------------- */

/* The body of an answer, once all of it is here; NULL before. */
static const char *find_body(const Connection *connection, size_t *length) {
    const char *answer = connection->answer;
    const char *end = strstr(answer, "\r\n\r\n");
    if (end == NULL) return NULL;
    const char *field = strcasestr(answer, "\r\ncontent-length:");
    if (field == NULL || field > end) die("an answer without Content-Length: %s", answer);
    *length = strtoul(field + strlen("\r\ncontent-length:"), NULL, 10);
    size_t whole = (size_t)(end + 4 - answer) + *length;
    if (whole > BUFFER || connection->have > whole) die("an answer that is too long: %.500s", answer);
    return connection->have == whole ? end + 4 : NULL;
}

static void note_answer(Outcome *outcome, const Connection *connection, const char *body, size_t length) {
    int status = 0;
    if (sscanf(connection->answer, "HTTP/1.1 %d ", &status) != 1 || status < 100 || status >= STATUSES)
        die("this is no answer: %.500s", connection->answer);
    int empty = length == 4 && memcmp(body, "null", 4) == 0;
    if (status / 100 != 2 || empty) {
        if (outcome->errors++ == 0) fprintf(stderr, "the first error: %.2000s\n", connection->answer);
        outcome->empty += (size_t)empty;
    }
    outcome->statuses[status]++;
    outcome->last = now();
    outcome->latencies[outcome->count++] = (uint32_t)((outcome->last - connection->since) / 1000);
}

/* Read what has come; whether the answer is complete. */
static int receive(Connection *connection, Outcome *outcome) {
    ssize_t got = recv(connection->socket, connection->answer + connection->have, BUFFER - connection->have, 0);
    if (got <= 0) die("a connection ended: %s", got == 0 ? "the server closed it" : strerror(errno));
    connection->have += (size_t)got;
    connection->answer[connection->have] = '\0';
    size_t length;
    const char *body = find_body(connection, &length);
    if (body == NULL) return 0;
    note_answer(outcome, connection, body, length);
    return 1;
}

static int by_size(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static void report(Outcome *outcome, uint64_t began) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);  /* before the sorting, which is no load */
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec)
        + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    size_t count = outcome->count;
    qsort(outcome->latencies, count, sizeof *outcome->latencies, by_size);
    printf("{\"count\": %zu, \"errors\": %zu, \"empty\": %zu, \"status\": {", count, outcome->errors, outcome->empty);
    const char *separator = "";
    for (int status = 0; status < STATUSES; status++) {
        if (outcome->statuses[status] == 0) continue;
        printf("%s\"%d\": %zu", separator, status, outcome->statuses[status]);
        separator = ", ";
    }
    printf("}, \"seconds\": %.6f, \"p50\": %.3f, \"p99\": %.3f, \"worst\": %.3f, \"cpu\": %.3f}\n",
           (double)(outcome->last - began) / 1e9, outcome->latencies[count * 50 / 100] / 1e3,
           outcome->latencies[count * 99 / 100] / 1e3, outcome->latencies[count - 1] / 1e3, cpu);
}

/* --- the loop ----------------------------------------------------------------------------------------------------- */

int main(int argc, char **argv) {
    if (argc != 6) die("PORT CONNECTIONS COUNT RATE FILE");
    uint16_t port = (uint16_t)atoi(argv[1]);
    size_t connections = strtoul(argv[2], NULL, 10), total = strtoul(argv[3], NULL, 10), kinds;
    double rate = strtod(argv[4], NULL);
    if (connections == 0 || total == 0 || rate < 0) die("CONNECTIONS and COUNT are 1 or more, RATE is 0 or more");
    Request *requests = read_requests(argv[5], &kinds);
    Idle idle = {.ring = allocate(connections, sizeof *idle.ring), .size = connections};

    int events = epoll_create1(0);
    Connection *all = allocate(connections, sizeof *all);
    for (size_t each = 0; each < connections; each++) {
        all[each].socket = connect_to(port);
        struct epoll_event readable = {.events = EPOLLIN, .data.ptr = &all[each]};
        epoll_ctl(events, EPOLL_CTL_ADD, all[each].socket, &readable);
        add_idle(&idle, &all[each]);
    }

    /* In an open loop a timer allows a request at each of its ticks; the first one comes a tick after the beginning. */
    uint64_t began = now(), tick = rate > 0 ? (uint64_t)((double)SECOND / rate) : 0;
    size_t sent = 0, allowed = tick ? 0 : total;
    Outcome outcome = {.last = began, .latencies = allocate(total, sizeof *outcome.latencies)};
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    if (tick) {
        struct itimerspec ticks = {.it_interval = as_timespec(tick), .it_value = as_timespec(began + tick)};
        struct epoll_event ticked = {.events = EPOLLIN, .data.ptr = NULL};
        if (timerfd_settime(timer, TFD_TIMER_ABSTIME, &ticks, NULL) != 0) die("no timer: %s", strerror(errno));
        epoll_ctl(events, EPOLL_CTL_ADD, timer, &ticked);
    }

    while (outcome.count < total) {
        for (; sent < allowed && sent < total && idle.count; sent++) {
            uint64_t since = tick ? began + (sent + 1) * tick : now();
            send_request(take_idle(&idle), requests[sent % kinds], since);
        }
        struct epoll_event happened[EVENTS];
        int count = epoll_wait(events, happened, EVENTS, 1000);
        if (now() - outcome.last > PATIENCE * SECOND) die("no answer for %d seconds", PATIENCE);
        for (int each = 0; each < count; each++) {
            Connection *connection = happened[each].data.ptr;
            uint64_t ticks;
            if (connection == NULL)
                allowed += read(timer, &ticks, sizeof ticks) == sizeof ticks ? ticks : 0;
            else if (receive(connection, &outcome))
                add_idle(&idle, connection);
        }
    }
    report(&outcome, began);
    return 0;
}
