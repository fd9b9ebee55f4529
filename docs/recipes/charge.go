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

// Payment is what the till stores before the call: enough to repeat it.
type Payment struct {
	ID      string  `json:"id"`
	Request Request `json:"request"`
}

// Request has its amount as text: a binary float would not be exact.
type Request struct {
	Amount map[string]string `json:"amount"`
}

// Reply is a transaction, or a problem (then Code is set).
type Reply struct {
	Phase     string
	Display   struct{ Text string }
	NextStep  string `json:"next_step"`
	Attention []struct{ Detail string }
	Outcome   *struct {
		Result           string
		TicketNumber     string                    `json:"ticket_number"`
		AuthorizedAmount json.Number               `json:"authorized_amount"` // exact
		FailureReason    *struct{ Message string } `json:"failure_reason"`
	}
	Code   string
	Detail string
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
		payment = Payment{newID(), Request{map[string]string{"subtotal_iva0": os.Args[1]}}}
		if err := store(payment); err != nil {
			fail(err)
		}
	default:
		fmt.Fprintln(os.Stderr, "usage: charge AMOUNT")
		os.Exit(usage)
	}

	code := notPaid
	if transaction, started := start(payment); started {
		code = tell(payment, finish(payment, transaction))
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

// start starts it, or hears that it is known: both are the same call. False: posd refused, and nothing was sent.
func start(payment Payment) (Reply, bool) {
	body, err := json.Marshal(payment.Request)
	if err != nil {
		fail(err)
	}
	for {
		status, reply, err := call("PUT", payment.ID, body)
		refused := status/100 == 4 || status == 501 || status == 503
		switch {
		case err != nil: // no answer, or none of posd: the same call with the same id is always safe
		case status == 200 || status == 201:
			return reply, true
		case reply.Code == "id_reused" || reply.Code == "pruned" || reply.Code == "storage_unavailable":
			// An earlier call may have started it: never another id now.
			callSupervisor(reply.Detail)
		case refused && reply.Code != "" && reply.Code != "draining":
			show("NOT PAID: " + reply.Detail) // nothing was sent, nothing is recorded
			return reply, false
		}
		show("One moment, please")
		time.Sleep(time.Second)
	}
}

// finish waits for the end, over restarts of posd.
func finish(payment Payment, transaction Reply) Reply {
	for transaction.Phase != "final" {
		show(transaction.Display.Text) // where the next step is ask_person, it sends for the supervisor
		// Returns with the outcome; the 2 seconds are for what is shown, they decide nothing.
		_, _, err := call("GET", payment.ID+"/outcome?timeout=2", nil)
		status, reply := 0, Reply{}
		if err == nil {
			status, reply, err = call("GET", payment.ID, nil)
		}
		switch {
		case err == nil && status == 200:
			transaction = reply
		case status == 404 || status == 410:
			callSupervisor("posd does not know the payment " + payment.ID + " any more")
		default:
			show("One moment, please. The payment goes on.") // posd restarts: nothing is lost
			time.Sleep(time.Second)
		}
	}
	return transaction
}

// tell says how it ended, and returns the exit code.
func tell(payment Payment, transaction Reply) int {
	outcome := transaction.Outcome
	switch transaction.NextStep {
	case "done":
		show(transaction.Display.Text + ", ticket " + outcome.TicketNumber)
		amount, authorized := payment.Request.Amount["subtotal_iva0"], outcome.AuthorizedAmount.String()
		if authorized == "" || exact(authorized).Cmp(exact(amount)) == 0 {
			return paid
		}
		return paidAnotherAmount // a gift card had less on it, and the text says so
	case "new_id_ok":
		why := ""
		if outcome.FailureReason != nil {
			why = outcome.FailureReason.Message
		}
		show(transaction.Display.Text + ": " + outcome.Result + " " + why)
		return notPaid
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
