// A TLS client like that of a terminal in Java, such as an Android terminal. Usage: java Check.java CA_FILE PORT NAME
// If the certificate is valid, it sends a request line and exits 0. Otherwise it prints the reason and exits 1.

import java.io.FileInputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLException;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;

public class Check {
    public static void main(String[] arguments) throws Exception {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null);
        try (FileInputStream file = new FileInputStream(arguments[0])) {
            trusted.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory managers = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        managers.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, managers.getTrustManagers(), null);
        int port = Integer.parseInt(arguments[1]);
        Socket plain = new Socket(InetAddress.getByAddress(new byte[] {127, 0, 0, 1}), port);
        SSLSocket socket = (SSLSocket) context.getSocketFactory().createSocket(plain, arguments[2], port, true);
        SSLParameters strict = socket.getSSLParameters();
        strict.setEndpointIdentificationAlgorithm("HTTPS");
        socket.setSSLParameters(strict);
        try {
            socket.startHandshake();
        } catch (SSLException error) {
            System.out.println("refused: " + error.getMessage());
            System.exit(1);
        }
        socket.getOutputStream().write("GET / HTTP/1.1\r\n\r\n".getBytes(StandardCharsets.US_ASCII));
        socket.getInputStream().readAllBytes();
        System.out.println("accepted");
    }
}
