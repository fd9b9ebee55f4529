// go run charge.go AMOUNT: charge a card and wait for the outcome, with the standard library alone.
// go run charge.go: finish the payment that a crash left open.
//
// It says what the cashier should see. Exit code: 0 paid, 3 not paid, 6 paid, but another amount, 4 a person has to look,
// 5 what was left open is finished and AMOUNT was not charged, 1 or 2 usage or a fault of this program: they say nothing.
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
	"strings"
	"time"
)

// Payment is what the till stores before the call: enough to repeat it. Made is when the id was made.
type Payment struct {
	ID      string  `json:"id"`
	Made    string  `json:"made"`
	Request Request `json:"request"`
}

// Request has its amount as text: a binary float would not be exact.
type Request struct {
	Amount map[string]string `json:"amount"`
}

// Reply is a transaction, an outcome, or a problem (then Code is set).
type Reply struct {
	NextStep         string `json:"next_step"`
	Display          struct{ Text string }
	Attention        []struct{ Detail string }
	Result           string
	TicketNumber     string                   `json:"ticket_number"`
	AuthorizedAmount json.Number              `json:"authorized_amount"` // exact
	FailureReason    struct{ Message string } `json:"failure_reason"`

	Code         string
	Detail       string
	NeverStarted bool   `json:"never_started"`
	MissingUntil string `json:"records_missing_until"`
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
	openFile  = filepath.Join(directory, "open-payment") // the payment that has no outcome yet
	posd      = http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", env("POSD_SOCKET", "/run/posd/till.sock"))
		},
	}}
	shown string
)

func main() {
	payment, err := load()
	notYet := "" // an amount whose turn comes when the one that was left open is settled
	switch {
	case err == nil:
		fmt.Println("First, the payment of " + payment.Request.Amount["subtotal_iva0"] + " that was left open:")
		if len(os.Args) > 1 {
			notYet = os.Args[1]
		}
	case !errors.Is(err, os.ErrNotExist):
		fail(err)
	case len(os.Args) == 2:
		// Id and request are on disk before the call, so that the same call can be repeated after any failure.
		made := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
		payment = Payment{newID(), made, Request{map[string]string{"subtotal_iva0": os.Args[1]}}}
		if err := store(payment); err != nil {
			fail(err)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: charge AMOUNT")
		os.Exit(usage)
	}

	code := notPaid
	if start(payment) {
		code = tell(payment, finish(payment))
	}
	if err := os.Remove(openFile); err != nil {
		fail(err)
	}
	if notYet != "" {
		fmt.Println(notYet + " WAS NOT CHARGED: it was the turn of the payment that was left open")
		code = anotherWasOpen
	}
	os.Exit(code)
}

// start starts it, or hears that it is known: both are the same call. False: nothing was ever sent under this id.
func start(payment Payment) bool {
	body, err := json.Marshal(payment.Request)
	if err != nil {
		fail(err)
	}
	for attempt := 1; ; attempt++ {
		status, reply, err := call("PUT", payment.ID, body)
		// posd knows that it was never started, or the till, whose id is newer than the records that a restore lost.
		neverStarted := reply.NeverStarted || reply.MissingUntil != "" && payment.Made > reply.MissingUntil
		sameCall := reply.NextStep == "same_call"
		switch {
		case err != nil || reply.Code == "" && status/100 != 2:
			show("One moment, please") // no answer, or none of posd: the same call with the same id is always safe
		case status/100 == 2:
			show(reply.Display.Text)
			return true
		case reply.NextStep == "new_id_ok" || neverStarted && (!sameCall || attempt >= 3):
			show("NOT PAID: " + reply.Detail)
			return false
		case !sameCall: // ask_person, or an earlier call may have started it
			callSupervisor(reply.Detail)
		default:
			show(reply.Detail)
		}
		if reply.RetryAfter == 0 {
			reply.RetryAfter = 1
		}
		time.Sleep(time.Duration(reply.RetryAfter) * time.Second)
	}
}

// finish waits for the outcome, over restarts of posd.
func finish(payment Payment) Reply {
	for {
		// Returns with the outcome; the 2 seconds are for what is shown, they decide nothing.
		status, reply, err := call("GET", payment.ID+"/outcome?timeout=2", nil)
		switch {
		case err == nil && status == 200:
			return reply
		case err == nil && status == 202:
			show(reply.Display.Text) // where the next step is ask_person, it sends for the supervisor
		case status == 404 || status == 410:
			callSupervisor(reply.Detail)
		default:
			show("One moment, please. The payment goes on.") // posd restarts: nothing is lost
			time.Sleep(time.Second)
		}
	}
}

// tell says how it ended, and returns the exit code.
func tell(payment Payment, outcome Reply) int {
	switch outcome.NextStep {
	case "done":
		show(outcome.Display.Text + ", ticket " + outcome.TicketNumber)
		amount, authorized := payment.Request.Amount["subtotal_iva0"], outcome.AuthorizedAmount.String()
		if authorized == "" || exact(authorized).Cmp(exact(amount)) == 0 {
			return paid
		}
		return paidAnotherAmount // a gift card had less on it, and the text says so
	case "new_id_ok":
		show(outcome.Display.Text + ": " + outcome.Result + " " + outcome.FailureReason.Message)
		return notPaid
	}
	_, transaction, err := call("GET", payment.ID, nil)
	if err != nil {
		fail(err)
	}
	var details []string
	for _, attention := range transaction.Attention {
		details = append(details, attention.Detail)
	}
	callSupervisor(strings.Join(details, "; "))
	panic("not reached")
}

func exact(number string) *big.Rat {
	rational, ok := new(big.Rat).SetString(number)
	if !ok {
		fail(fmt.Errorf("%q is no amount", number))
	}
	return rational
}

// call calls posd below /v1/transactions/; an error means that no whole answer came.
func call(method, path string, body []byte) (int, Reply, error) {
	request, err := http.NewRequest(method, "http://posd/v1/transactions/"+path, bytes.NewReader(body))
	if err != nil {
		fail(err)
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := posd.Do(request)
	if err != nil {
		return 0, Reply{}, err
	}
	defer response.Body.Close()
	var reply Reply
	err = json.NewDecoder(response.Body).Decode(&reply)
	return response.StatusCode, reply, err
}

func load() (payment Payment, err error) {
	text, err := os.ReadFile(openFile)
	if err == nil {
		err = json.Unmarshal(text, &payment)
	}
	return payment, err
}

// store puts it on the disk, whole or not at all.
func store(payment Payment) error {
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

// callSupervisor leaves; the payment stays noted as open.
func callSupervisor(why string) {
	fmt.Println("CALL THE SUPERVISOR: " + why)
	os.Exit(supervisor)
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
