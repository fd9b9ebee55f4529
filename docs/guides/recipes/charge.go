// go run charge.go AMOUNT: charge a card and wait for the outcome, with the standard library alone.
// go run charge.go: settle the payment that a crash left open.
//
// The program prints what the cashier should see. Exit codes:
// 0 paid; 3 not paid; 6 paid, but another amount; 4 an operator has to check the payment;
// 5 AMOUNT was not charged, because an open payment was settled or another charge runs;
// 1 or 2 wrong usage, or the program failed and the payment may be open.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// Payment is what the till stores before the call: enough to repeat it. Made is when the id was made.
type Payment struct {
	ID      string  `json:"id"`
	Made    string  `json:"made"`
	Request Request `json:"request"`
}

// Request has its amount as text: a binary float is not exact.
type Request struct {
	Amount map[string]string `json:"amount"`
}

// Reply is a transaction, an outcome, or a problem (then Code is set).
type Reply struct {
	NextStep         string `json:"next_step"`
	Display          struct{ Text string }
	Result           string
	TicketNumber     string                   `json:"ticket_number"`
	AuthorizedAmount json.Number              `json:"authorized_amount"` // exact
	Tip              json.Number              // the tip of the terminal
	FailureReason    struct{ Message string } `json:"failure_reason"`

	Code         string
	Detail       string
	NeverStarted bool   `json:"never_started"`
	LostUntil    string `json:"records_missing_until"`
	RetryAfter   int    `json:"retry_after_seconds"`
}

// Exit codes. Go itself uses 1 and 2.
const (
	paid              = 0
	usage             = 2
	notPaid           = 3
	supervisor        = 4
	anotherWasOpen    = 5
	paidAnotherAmount = 6
)

var (
	directory = env("TILL_DIR", ".")
	openFile  = filepath.Join(directory, "open-payment") // the payment without an outcome
	posd      = http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", env("POSD_SOCKET", "/run/posd/till.sock"))
		},
	}}
	payment Payment
	notYet  string // the amount to charge after the open payment is settled
	shown   string
)

func main() {
	// One run at a time. The lock is released when this program ends, also by a crash.
	lock, err := os.Create(openFile + ".lock")
	if err != nil {
		fail(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == syscall.EWOULDBLOCK {
		if len(os.Args) > 1 {
			fmt.Print(os.Args[1] + " WAS NOT CHARGED: ")
		}
		fmt.Println("another charge of this till is running")
		os.Exit(anotherWasOpen)
	} else if err != nil {
		fail(err)
	}
	run()
	runtime.KeepAlive(lock)
}

func run() {
	err := load()
	mayBeStarted := err == nil // then ask for the outcome; start only if posd says never_started
	switch {
	case err == nil:
		fmt.Println("First, the payment of " + payment.Request.Amount["subtotal_iva0"] + " that was left open:")
		if len(os.Args) > 1 {
			notYet = os.Args[1]
		}
	case !errors.Is(err, os.ErrNotExist):
		fail(err)
	case len(os.Args) == 2:
		// Id and request are on disk before the call.
		payment = Payment{newID(), now(), Request{map[string]string{"subtotal_iva0": os.Args[1]}}}
		if err := store(); err != nil {
			fail(err)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: charge AMOUNT")
		os.Exit(usage)
	}

	request, err := json.Marshal(payment.Request)
	if err != nil {
		fail(err)
	}
	for tries := 0; ; {
		method, path, body := "PUT", "", request
		if mayBeStarted {
			method, path, body = "GET", "/outcome?timeout=2", nil // 2 seconds until the text is shown again
		}
		status, reply := call(method, path, body)
		// No restore lost a record made after that time. A `made` in the future comes from a wrong clock and proves nothing.
		newer := reply.LostUntil != "" && payment.Made > reply.LostUntil && payment.Made <= now()
		neverStarted := newer || reply.NeverStarted
		switch {
		case mayBeStarted && status == 200:
			tell(reply)
		case status/100 == 2:
			mayBeStarted = true
			show(reply.Display.Text)
		case mayBeStarted && neverStarted:
			mayBeStarted = false
		default:
			wait := status == 0 || reply.NextStep == "same_call" || mayBeStarted && (status == 429 || status >= 500)
			if neverStarted {
				tries++
			}
			if neverStarted && (!wait || tries == 3) {
				end("NOT PAID: "+reply.Detail, notPaid)
			}
			if !wait {
				end("CALL THE SUPERVISOR: "+reply.Detail+" (payment "+payment.ID+")", supervisor)
			}
			mayBeStarted = true
			if reply.Detail == "" {
				reply.Detail = "One moment, please"
			}
			if reply.RetryAfter == 0 {
				reply.RetryAfter = 1
			}
			show(reply.Detail) // posd restarts, or the terminal is busy
			time.Sleep(time.Duration(reply.RetryAfter) * time.Second)
		}
	}
}

// tell prints the result.
func tell(outcome Reply) {
	text := outcome.Display.Text
	switch outcome.NextStep {
	case "done":
		code, authorized := paid, outcome.AuthorizedAmount.String()
		tip := exact("0" + outcome.Tip.String())
		if authorized != "" && tip.Sub(exact(authorized), tip).Cmp(exact(payment.Request.Amount["subtotal_iva0"])) != 0 {
			code = paidAnotherAmount // a gift card had less money, and the text says so
		}
		end(text+", ticket "+outcome.TicketNumber, code)
	case "new_id_ok":
		end(text+": "+outcome.Result+" "+outcome.FailureReason.Message, notPaid)
	}
	end(text+" (payment "+payment.ID+")", supervisor)
}

// end prints the result and exits. A payment that an operator has to check stays stored.
func end(words string, code int) {
	show(words)
	if code == supervisor {
		os.Exit(code)
	}
	if err := os.Remove(openFile); err != nil { // a till books the result first
		fail(err)
	}
	if notYet != "" {
		fmt.Println(notYet + " WAS NOT CHARGED: the payment that was left open was settled instead")
		code = anotherWasOpen
	}
	os.Exit(code)
}

func exact(number string) *big.Rat {
	rational, ok := new(big.Rat).SetString(number)
	if !ok {
		fail(fmt.Errorf("%q is not an amount", number))
	}
	return rational
}

// call calls posd about this payment. Status 0: no complete reply of posd arrived.
func call(method, path string, body []byte) (status int, reply Reply) {
	request, err := http.NewRequest(method, "http://posd/v1/transactions/"+payment.ID+path, bytes.NewReader(body))
	if err != nil {
		fail(err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := posd.Do(request)
	if err != nil {
		return 0, Reply{}
	}
	defer response.Body.Close()
	err = json.NewDecoder(response.Body).Decode(&reply)
	if err != nil || reply.Code == "" && reply.Display.Text == "" {
		return 0, Reply{}
	}
	return response.StatusCode, reply
}

func load() error {
	text, err := os.ReadFile(openFile)
	if err == nil {
		err = json.Unmarshal(text, &payment)
	}
	return err
}

// store writes the payment to the disk, completely or not at all.
func store() error {
	text, err := json.Marshal(payment)
	if err != nil {
		return err
	}
	file, err := os.Create(openFile + ".new")
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(text); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(openFile+".new", openFile); err != nil {
		return err
	}
	parent, err := os.Open(directory)
	if err != nil {
		return err
	}
	defer parent.Close()
	return parent.Sync()
}

func now() string {
	return time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
}

func newID() string {
	b := make([]byte, 16)
	if _, err := rand.Read(b); err != nil {
		fail(err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80 // version 4
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func show(text string) {
	if text != shown {
		fmt.Println(text)
	}
	shown = text
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}
