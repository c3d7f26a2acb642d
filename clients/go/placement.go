package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/bradfitz/gomemcache/memcache"
)

// Answers where gomemcache places keys. See ../php/placement.php for what comes in and goes out.
func placement(path string) {
	file, err := os.ReadFile(path)
	same(err, nil, "file of keys")
	keys := strings.Split(strings.TrimSuffix(string(file), "\n"), "\n")
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(nil, 1<<20)
	output := bufio.NewWriter(os.Stdout)
	defer output.Flush()
	answers := 0
	for input.Scan() {
		words := strings.Split(input.Text(), "\t")
		var servers []string
		index := map[string]int{}
		for number, server := range strings.Split(words[4], ";") {
			parts := strings.Split(server, " ")
			address := parts[0]
			if !strings.HasPrefix(address, "/") {
				address = net.JoinHostPort(parts[0], parts[1])
			}
			servers = append(servers, address)
			index[address] = number
		}
		var list memcache.ServerList
		same(list.SetServers(servers...), nil, "SetServers")
		output.WriteString(words[0])
		for _, key := range keys {
			address, err := list.PickServer(key)
			same(err, nil, "PickServer")
			output.WriteString(" " + strconv.Itoa(index[address.String()]))
		}
		output.WriteString("\n")
		answers++
	}
	same(input.Err(), nil, "input")
	fmt.Fprintln(output, "ok", answers)
}
