package host

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// kernelLog follows the kernel log: each call of read continues where the last
// one stopped.
type kernelLog struct {
	open    func() (recordReader, error)
	src     recordReader
	err     error // why there is no log
	first   time.Duration
	started bool
	says
}

// recordReader gives one record of /dev/kmsg per call. io.EOF: no more now.
type recordReader interface {
	next() ([]byte, error)
	io.Closer
}

// maxRecords bounds one pass, against a kernel that writes faster than we read.
const maxRecords = 1 << 17

// kernelLog reads what is new in the log.
func (r *Reader) kernelLog(s *Snapshot) {
	r.log.read()
	if r.log.err != nil {
		s.gap("kernel log", r.log.err)
	} else if r.log.lost() {
		s.Incomplete = append(s.Incomplete, Gap{"kernel log", fmt.Sprintf("begins %v after boot: older lines were overwritten", r.log.first.Round(time.Second))})
	}
	s.KernelSays = r.log.lines[:len(r.log.lines):len(r.log.lines)]
}

// lost tells whether the log does not reach back to boot.
func (l *kernelLog) lost() bool { return l.started && l.first > 5*time.Second }

func (l *kernelLog) read() {
	if l.src == nil {
		if l.src, l.err = l.open(); l.err != nil {
			l.src = nil
			return
		}
	}
	for range maxRecords {
		b, err := l.src.next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			l.err = err
			return
		}
		at, text, ok := parseRecord(b)
		if !ok {
			continue
		}
		if !l.started {
			l.first, l.started = at, true
		}
		l.add(at, text)
	}
}

func (l *kernelLog) close() error {
	if l.src == nil {
		return nil
	}
	err := l.src.Close()
	l.src = nil
	return err
}

// parseRecord reads "6,339,5140900,-;text\n KEY=value\n…": priority and facility,
// sequence number, microseconds since boot, flags (Documentation/ABI/testing/
// dev-kmsg). It leaves out what is not the kernel's own word: anybody with
// /dev/kmsg can write there, but only under another facility.
func parseRecord(b []byte) (at time.Duration, text string, ok bool) {
	head, body, ok := bytes.Cut(b, []byte(";"))
	if !ok {
		return 0, "", false
	}
	fields := strings.SplitN(string(head), ",", 4)
	if len(fields) < 3 {
		return 0, "", false
	}
	prio, err := strconv.ParseUint(fields[0], 10, 32)
	if err != nil || prio>>3 != 0 {
		return 0, "", false
	}
	usec, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil || usec < 0 || usec > int64(1<<63-1)/int64(time.Microsecond) {
		return 0, "", false
	}
	body, _, _ = bytes.Cut(body, []byte("\n"))
	return time.Duration(usec) * time.Microsecond, unhex(body), true
}

// unhex undoes the escapes of /dev/kmsg: \x0a for what is not printable.
func unhex(b []byte) string {
	if !bytes.Contains(b, []byte(`\x`)) {
		return string(b)
	}
	var out []byte
	for i := 0; i < len(b); i++ {
		if b[i] == '\\' && i+3 < len(b) && b[i+1] == 'x' {
			if v, err := strconv.ParseUint(string(b[i+2:i+4]), 16, 8); err == nil {
				out = append(out, byte(v))
				i += 3
				continue
			}
		}
		out = append(out, b[i])
	}
	return string(out)
}

// devKmsg reads /dev/kmsg from its first record, without waiting for new ones.
type devKmsg struct {
	fd  int
	buf [8 << 10]byte // a record is at most 8 KiB (CONSOLE_EXT_LOG_MAX)
}

func openKmsg() (recordReader, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err == nil {
		return &devKmsg{fd: fd}, nil
	}
	// No device node (a container) or hidden from us; syslog(2) has other rules.
	if old, serr := openSyslog(); serr == nil {
		return old, nil
	}
	return nil, &os.PathError{Op: "open", Path: "/dev/kmsg", Err: err}
}

func (k *devKmsg) next() ([]byte, error) {
	for {
		n, err := unix.Read(k.fd, k.buf[:])
		switch err {
		case nil:
			return k.buf[:n], nil
		case unix.EAGAIN:
			return nil, io.EOF
		case unix.EINTR, unix.EPIPE: // EPIPE: records were overwritten; the next read goes on behind them
		default:
			return nil, os.NewSyscallError("read /dev/kmsg", err)
		}
	}
}

func (k *devKmsg) Close() error { return unix.Close(k.fd) }

// stored gives records from memory; with a file it is the log of a captured machine.
type stored struct {
	sc *bufio.Scanner
}

func (s stored) next() ([]byte, error) {
	for s.sc.Scan() {
		if b := s.sc.Bytes(); len(b) > 0 && b[0] != ' ' { // a record's KEY=value lines begin with a space
			return b, nil
		}
	}
	if err := s.sc.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}

func (stored) Close() error { return nil }

func newStored(b []byte) stored {
	sc := bufio.NewScanner(bytes.NewReader(b))
	sc.Buffer(nil, 64<<10)
	return stored{sc}
}

func fileKmsg(path string) func() (recordReader, error) {
	return func() (recordReader, error) {
		b, err := readFile(path, 32<<20)
		if err != nil {
			return nil, err
		}
		return newStored(b), nil
	}
}

// openSyslog takes the whole buffer through syslog(2), once.
func openSyslog() (recordReader, error) {
	const size = 1 << 20
	buf := make([]byte, size)
	n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, buf)
	if err != nil {
		return nil, os.NewSyscallError("syslog", err)
	}
	return newStored(fromSyslog(buf[:n])), nil
}

// fromSyslog turns lines "<6>[    5.140900] text" into records of /dev/kmsg.
func fromSyslog(b []byte) []byte {
	var out bytes.Buffer
	for line := range bytes.Lines(b) {
		line = bytes.TrimRight(line, "\n")
		prio, rest, ok := bytes.Cut(bytes.TrimPrefix(line, []byte("<")), []byte(">"))
		if !ok || len(rest) == 0 || rest[0] != '[' {
			continue
		}
		stamp, text, ok := bytes.Cut(rest[1:], []byte("] "))
		sec, usec, dot := bytes.Cut(bytes.TrimSpace(stamp), []byte("."))
		if !ok || !dot || len(usec) != 6 {
			continue
		}
		fmt.Fprintf(&out, "%s,0,%s%s,-;%s\n", prio, sec, usec, text)
	}
	return out.Bytes()
}

// Tail is the kernel log from a moment on: what the kernel says while something
// is being done to it.
type Tail struct{ log kernelLog }

// OpenTail begins behind the last line there is. It fails where the log is hidden
// from this user or there is no /dev/kmsg.
func OpenTail() (*Tail, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: "/dev/kmsg", Err: err}
	}
	if _, err := unix.Seek(fd, 0, io.SeekEnd); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("seek /dev/kmsg", err)
	}
	return &Tail{kernelLog{src: &devKmsg{fd: fd}}}, nil
}

// Lines are the stack's lines since the last call.
func (t *Tail) Lines() []KernelLine {
	t.log.read()
	lines := t.log.lines
	t.log.lines = nil
	return lines
}

// Close ends it.
func (t *Tail) Close() error { return t.log.close() }
