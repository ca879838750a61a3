// Guest is the bench's agent inside a virtual machine: PID 1 of the small
// guest, a service of the systemd one. It does what the bench asks for over
// the second serial port; see ibup/test/vm/wire.
package main

import (
	"fmt"
	"os"
)

func main() {
	var err error
	switch {
	case os.Getpid() == 1:
		err = initMain()
	case len(os.Args) == 2 && os.Args[1] == "small":
		err = serveSmall()
	default:
		err = serve(nil)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench agent:", err)
		os.Exit(1)
	}
}
