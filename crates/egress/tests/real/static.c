/* A static program that ignores proxy variables: sends its own DNS query, connects, and prints the response. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int resolved(const char *name, struct in_addr *address) {
    unsigned char packet[512] = {1, 2, 1, 0, 0, 1};
    size_t end = 12;
    while (*name) {
        size_t label = strcspn(name, ".");
        packet[end++] = label;
        memcpy(packet + end, name, label);
        end += label;
        name += label + (name[label] == '.');
    }
    memcpy(packet + end, "\0\0\1\0\1", 5);
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(53)};
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int socket_ = socket(AF_INET, SOCK_DGRAM, 0);
    connect(socket_, (struct sockaddr *)&there, sizeof there);
    send(socket_, packet, end + 5, 0);
    ssize_t got = recv(socket_, packet, sizeof packet, 0);
    if (got < 16 || packet[7] == 0) return 0;
    memcpy(address, packet + got - 4, 4);
    return 1;
}

int main(int count, char **words) {
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(atoi(words[2]))};
    if (!inet_aton(words[1], &there.sin_addr) && !resolved(words[1], &there.sin_addr)) {
        puts("no such name");
        return 1;
    }
    int socket_ = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(socket_, (struct sockaddr *)&there, sizeof there)) {
        perror("connect");
        return 2;
    }
    dprintf(socket_, "GET / HTTP/1.1\r\nHost: %s\r\n\r\n", words[1]);
    shutdown(socket_, SHUT_WR);
    char answer[4096];
    ssize_t got;
    while ((got = read(socket_, answer, sizeof answer)) > 0) fwrite(answer, 1, got, stdout);
    return 0;
}
