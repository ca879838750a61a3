// Package wire is what the bench and its agent in a guest say to each other: a
// stream of JSON values over a serial line, requests one way, replies the
// other. Replies come in any order; an ID pairs them.
package wire

// Operations of a [Request].
const (
	OpRun     = "run"     // Args, Env, Dir, Stdin, Timeout → Code, Stdout, Stderr
	OpSignal  = "signal"  // Target, Signal: to the process group of a run
	OpOutput  = "output"  // Target → Stdout, Stderr so far
	OpPut     = "put"     // Path, Data, Mode (then parents are made)
	OpGet     = "get"     // Path → Data
	OpAwait   = "await"   // Path and Match or Gone, or Args; Timeout → Data
	OpUevents = "uevents" // → Uevents since the agent started
	OpKmsg    = "kmsg"    // → Kmsg since boot
)

// Request asks the agent for one operation.
type Request struct {
	ID      uint64
	Op      string
	Args    []string `json:",omitempty"`
	Env     []string `json:",omitempty"` // added to the agent's own
	Dir     string   `json:",omitempty"`
	Stdin   []byte   `json:",omitempty"`
	Timeout float64  `json:",omitempty"` // seconds of guest time; 0: none
	Target  uint64   `json:",omitempty"` // ID of a run
	Signal  int      `json:",omitempty"`
	Path    string   `json:",omitempty"`
	Match   string   `json:",omitempty"` // regular expression
	Gone    bool     `json:",omitempty"` // wait for Path to disappear
	Data    []byte   `json:",omitempty"`
	Mode    uint32   `json:",omitempty"`
}

// Reply answers the request with the same ID. A reply with ID 0 is the
// agent's greeting: the guest is ready.
type Reply struct {
	ID      uint64
	Error   string   `json:",omitempty"`
	Code    int      `json:",omitempty"` // exit status; 128+N when killed by signal N
	Stdout  []byte   `json:",omitempty"`
	Stderr  []byte   `json:",omitempty"`
	Data    []byte   `json:",omitempty"`
	Uevents []Uevent `json:",omitempty"`
	Kmsg    []Kmsg   `json:",omitempty"`
	Uptime  float64  // seconds since the guest's boot
}

// Uevent is a kernel uevent as the agent's own netlink socket received it.
type Uevent struct {
	Uptime  float64
	Action  string
	Devpath string            // below /sys
	Env     map[string]string // with SUBSYSTEM, SEQNUM and the rest
}

// Kmsg is a record of the kernel log.
type Kmsg struct {
	Uptime float64
	Level  int // 0 emergency … 3 error, 4 warning … 7 debug
	Text   string
}
