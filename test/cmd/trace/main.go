// Trace runs a command in a guest, without strace, and tells what it asked the
// kernel to change; or kills it at a chosen moment of its journal. See usage.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const usage = `usage: trace [-o FILE] [-kill WHEN] COMMAND [ARG…]
  -o FILE     write what was counted there, as JSON
  -kill WHEN  send SIGKILL at a moment, of the steps in the command's journal:
                begin:N   the N-th step of this run is recorded as begun, nothing of it is done
                end:N     it is done, but not recorded as ended
                module:N  50 ms into the N-th loading of a module
Exit status: the command's; 137 when it was killed.
`

func main() {
	out := flag.String("o", "", "")
	when := flag.String("kill", "", "")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	k, err := parseKill(*when)
	if err != nil {
		fail(err)
	}
	// A terminal's or the bench's signals are for the command.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM)
	t := newTracer(k)
	code, err := t.run(flag.Args())
	if err != nil {
		fail(err)
	}
	if *out != "" {
		b, err := json.Marshal(t.report)
		if err == nil {
			err = os.WriteFile(*out, b, 0o644)
		}
		if err != nil {
			fail(err)
		}
	}
	os.Exit(code)
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "trace:", err)
	os.Exit(2)
}
