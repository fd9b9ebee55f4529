// A TLS client as a terminal written in Go has it. Usage: check CA_FILE ADDRESS NAME
// It sends one request line and exits 0 where the certificate is accepted, says why and exits 1 where it is not.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"os"
)

func main() {
	pem, err := os.ReadFile(os.Args[1])
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		fmt.Println("the CA file holds no certificate")
		os.Exit(2)
	}
	connection, err := tls.Dial("tcp", os.Args[2], &tls.Config{RootCAs: roots, ServerName: os.Args[3]})
	if err != nil {
		fmt.Println("refused:", err)
		os.Exit(1)
	}
	fmt.Fprint(connection, "GET / HTTP/1.1\r\n\r\n")
	io.Copy(io.Discard, connection)
	fmt.Println("accepted")
}
