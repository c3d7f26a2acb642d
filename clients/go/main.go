// Exercises gomemcache against the server that SERVER names, `host:port` or the path of a UNIX socket.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

var (
	server = os.Getenv("SERVER")
	isUnix = strings.HasPrefix(server, "/")
	checks int
)

func same(got, expected any, what string) {
	checks++
	if !reflect.DeepEqual(got, expected) {
		fmt.Printf("%s: expected %.200v and got %.200v\n", what, expected, got)
		os.Exit(1)
	}
}

func passSeconds(seconds int) {
	if os.Getenv("CLOCK") != "debugtime" {
		time.Sleep(time.Duration(seconds+1) * time.Second)
		return
	}
	network := "tcp"
	if isUnix {
		network = "unix"
	}
	control, err := net.Dial(network, server)
	same(err, nil, "connection for debugtime")
	defer control.Close()
	fmt.Fprintf(control, "debugtime %d\r\n", seconds+1)
	answer := make([]byte, 100)
	n, err := control.Read(answer)
	same(err, nil, "answer to debugtime")
	same(string(answer[:n]), "OK\r\n", "debugtime")
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "placement" {
		placement(os.Args[2])
		return
	}
	m := memcache.New(server)
	m.Timeout = 20 * time.Second
	m.MaxIdleConns = 16

	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	every = append(every, "\r\nEND\r\n\x00"...)
	item := func(key, value string) *memcache.Item { return &memcache.Item{Key: key, Value: []byte(value)} }
	value := func(key string) string {
		got, err := m.Get(key)
		if err != nil {
			return err.Error()
		}
		return string(got.Value)
	}

	same(m.Ping(), nil, "Ping")
	same(m.FlushAll(), nil, "FlushAll")
	same(m.Set(&memcache.Item{Key: "a", Value: every, Flags: 4294967295}), nil, "Set")
	got, err := m.Get("a")
	same(err, nil, "Get")
	same(got.Value, every, "value")
	same(got.Flags, uint32(4294967295), "flags of 32 bits")
	same(m.Set(item("empty", "")), nil, "Set of nothing")
	same(value("empty"), "", "Get of nothing")
	_, err = m.Get("absent")
	same(err, memcache.ErrCacheMiss, "Get of an absent key")
	same(m.Set(item(strings.Repeat("k", 250), "v")), nil, "Set of a 250-byte key")
	same(value(strings.Repeat("k", 250)), "v", "Get of a 250-byte key")
	same(m.Set(item("ключ", "v")), nil, "Set of a key outside ASCII")
	same(value("ключ"), "v", "Get of a key outside ASCII")

	same(m.Add(item("a", "no")), memcache.ErrNotStored, "Add on present")
	same(m.Add(item("b", "mid")), nil, "Add on absent")
	same(m.Replace(item("absent", "no")), memcache.ErrNotStored, "Replace on absent")
	same(m.Append(item("b", ">")), nil, "Append")
	same(m.Prepend(item("b", "<")), nil, "Prepend")
	same(m.Append(item("absent", ">")), memcache.ErrNotStored, "Append on absent")
	same(value("b"), "<mid>", "after Append and Prepend")
	same(m.Replace(item("b", "new")), nil, "Replace on present")
	same(m.Delete("b"), nil, "Delete")
	same(m.Delete("b"), memcache.ErrCacheMiss, "second Delete")

	m.Set(item("n", "10"))
	n, err := m.Increment("n", 5)
	same([]any{n, err}, []any{uint64(15), nil}, "Increment")
	n, err = m.Decrement("n", 6)
	same([]any{n, err}, []any{uint64(9), nil}, "Decrement")
	n, err = m.Decrement("n", 100)
	same([]any{n, err}, []any{uint64(0), nil}, "Decrement below nothing")
	m.Set(item("n", "18446744073709551615"))
	n, err = m.Increment("n", 2)
	same([]any{n, err}, []any{uint64(1), nil}, "Increment past 64 bits")
	_, err = m.Increment("absent", 1)
	same(err, memcache.ErrCacheMiss, "Increment on absent")
	m.Set(item("word", "nuthatch"))
	_, err = m.Increment("word", 1)
	same(err != nil && strings.Contains(err.Error(), "non-numeric"), true, "Increment of a word")

	m.Set(item("c", "1"))
	first, _ := m.Get("c")
	second, _ := m.Get("c")
	first.Value = []byte("2")
	same(m.CompareAndSwap(first), nil, "CompareAndSwap that matches")
	second.Value = []byte("3")
	same(m.CompareAndSwap(second), memcache.ErrCASConflict, "CompareAndSwap that is out of date")
	same(value("c"), "2", "after both")
	m.Delete("c")
	same(m.CompareAndSwap(second), memcache.ErrCacheMiss, "CompareAndSwap on absent")

	keys := []string{"absent"}
	for i := 0; i < 1000; i++ {
		keys = append(keys, fmt.Sprintf("many:%d", i))
		m.Set(item(keys[i+1], fmt.Sprintf("value %d", i)))
	}
	many, err := m.GetMulti(keys)
	same(err, nil, "GetMulti")
	same(len(many), 1000, "GetMulti of 1000 keys")
	same(string(many["many:777"].Value), "value 777", "one of them")

	large := bytes.Repeat([]byte("0123456789abcdef"), 900*1024/16)
	same(m.Set(&memcache.Item{Key: "large", Value: large}), nil, "Set of 900 KiB")
	got, err = m.Get("large")
	same(err, nil, "Get of 900 KiB")
	same(bytes.Equal(got.Value, large), true, "900 KiB are the same")
	err = m.Set(&memcache.Item{Key: "large", Value: make([]byte, 2<<20)})
	same(err != nil && strings.Contains(err.Error(), "too large"), true, "Set of 2 MiB")
	same(value("large"), memcache.ErrCacheMiss.Error(), "a refused set leaves no stale value")

	// Many goroutines count together; none is lost.
	m.Set(item("shared", "0"))
	var wait sync.WaitGroup
	failed := make(chan error, 16)
	for g := 0; g < 16; g++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for i := 0; i < 200; i++ {
				if _, err := m.Increment("shared", 1); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	wait.Wait()
	select {
	case err := <-failed:
		same(err, nil, "concurrent Increment")
	default:
	}
	same(value("shared"), "3200", "no Increment is lost")

	m.Set(&memcache.Item{Key: "brief", Value: []byte("1"), Expiration: 2})
	m.Set(&memcache.Item{Key: "touched", Value: []byte("2"), Expiration: 2})
	m.Set(&memcache.Item{Key: "got", Value: []byte("3"), Expiration: 2})
	m.Set(&memcache.Item{Key: "past", Value: []byte("4"), Expiration: -1})
	same(value("past"), memcache.ErrCacheMiss.Error(), "negative expiry is the past")
	same(m.Touch("touched", 100), nil, "Touch")
	same(errors.Is(m.Touch("absent", 100), memcache.ErrCacheMiss), true, "Touch on absent")
	got, err = m.GetAndTouch("got", 100)
	same(err, nil, "GetAndTouch")
	same(string(got.Value), "3", "value of GetAndTouch")
	passSeconds(2)
	left, err := m.GetMulti([]string{"brief", "touched", "got"})
	same(err, nil, "GetMulti")
	same([]bool{left["brief"] != nil, left["touched"] != nil, left["got"] != nil}, []bool{false, true, true}, "after the expiry")
	same(m.DeleteAll(), nil, "DeleteAll")
	same(value("touched"), memcache.ErrCacheMiss.Error(), "Get after DeleteAll")

	if !isUnix {
		spread := memcache.New(strings.Fields(os.Getenv("SERVERS"))...)
		for i := 0; i < 1000; i++ {
			same(spread.Set(item(fmt.Sprintf("spread:%d", i), "v")), nil, "Set over three servers")
			keys[i] = fmt.Sprintf("spread:%d", i)
		}
		many, err = spread.GetMulti(keys[:1000])
		same(err, nil, "GetMulti over three servers")
		same(len(many), 1000, "every item is found over three servers")
	}
	fmt.Println("ok", checks)
}
