// Command freeports prints as many ports of loopback that are free now as it is asked for.
package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "freeports:", err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 2 {
		return fmt.Errorf("how many?")
	}
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	// All are held until the last is found, or one would come up twice.
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		defer l.Close()
		fmt.Println(l.Addr().(*net.TCPAddr).Port)
	}
	return nil
}
