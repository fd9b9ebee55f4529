// A TLS client like that of a terminal in Go. Usage: check CA_FILE ADDRESS NAME
// If the certificate is valid, it sends a request line and exits 0. Otherwise it prints the reason and exits 1.
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
