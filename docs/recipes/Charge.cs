// dotnet run Charge.cs AMOUNT: charge a card and wait for the outcome, with .NET 10; in a project from .NET 6 on.
// dotnet run Charge.cs: finish the payment that a crash left open.
//
// It says what the cashier should see. Exit code: 0 paid, 3 not paid, 6 paid, but another amount, 4 a person has to look,
// 5 what was left open is finished and AMOUNT was not charged, 2 wrong usage; 1, a fault of this program, says nothing.
using System;
using System.Diagnostics;
using System.Globalization;
using System.IO;
using System.Linq;
using System.Net.Http;
using System.Net.Sockets;
using System.Text;
using System.Text.Json;
using System.Threading.Tasks;

static class Charge
{
    static readonly string Folder = Environment.GetEnvironmentVariable("TILL_DIR") ?? ".";
    static readonly string Open = Path.Combine(Folder, "open-payment"); // the payment without an outcome: its id and amount
    static readonly string SocketPath = Environment.GetEnvironmentVariable("POSD_SOCKET") ?? "/run/posd/till.sock";
    static string shown = "", notYet = ""; // the latter: its turn comes when the one that was left open is settled

    static readonly HttpClient Posd = new HttpClient(new SocketsHttpHandler
    {
        UseProxy = false,
        ConnectCallback = async (context, cancel) =>
        {
            var socket = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
            await socket.ConnectAsync(new UnixDomainSocketEndPoint(SocketPath), cancel);
            return new NetworkStream(socket, ownsSocket: true);
        },
    });

    static async Task<int> Main(string[] arguments)
    {
        try
        {
            return await Run(arguments);
        }
        catch (Exception fault)
        {
            Console.Error.WriteLine(fault);
            return 1;
        }
    }

    static async Task<int> Run(string[] arguments)
    {
        bool leftOpen = File.Exists(Open);
        if (!leftOpen && arguments.Length != 1)
        {
            Console.Error.WriteLine("usage: Charge AMOUNT");
            return 2;
        }
        // Id and amount are on disk before the call, so that the same call can be repeated after any failure.
        if (!leftOpen) Store(Guid.NewGuid() + "\n" + arguments[0]);
        else if (arguments.Length > 0) notYet = arguments[0];
        string[] stored = File.ReadAllText(Open).Split('\n', 2);
        string id = stored[0], amount = stored[1];
        if (leftOpen) Show($"First, the payment of {amount} that was left open:");

        // Start it, or hear that it is known: both are the same call. The amount is a text: a binary float is not exact.
        string request = "{\"amount\": {\"subtotal_iva0\": \"" + JsonEncodedText.Encode(amount) + "\"}}";
        var (status, payment) = await Call("PUT", id, request);
        while (status != 200 && status != 201)
        {
            string code = Get(payment, "code"), detail = Get(payment, "detail");
            // An earlier call may have started it: never another id now.
            if (new[] { "id_reused", "pruned", "storage_unavailable" }.Contains(code)) return CallSupervisor(detail);
            bool refused = status / 100 == 4 || status == 501 || status == 503;
            // Nothing was sent, nothing is recorded.
            if (refused && code != "" && code != "draining") return Settled("NOT PAID: " + detail, 3);
            Show("One moment, please"); // no answer, or none of posd: the same call with the same id is always safe
            await Task.Delay(1000);
            (status, payment) = await Call("PUT", id, request);
        }

        // Wait for the end, over restarts of posd.
        JsonElement reply;
        while (Get(payment, "phase") != "final")
        {
            Show(Get(payment, "display", "text")); // where the next step is ask_person, it sends for the supervisor
            do
            {
                await Call("GET", id + "/outcome?timeout=2"); // returns with the outcome; the 2 seconds are for what is shown
                (status, reply) = await Call("GET", id);
                if (status == 404 || status == 410) return CallSupervisor($"posd does not know the payment {id} any more");
                if (status == 200) continue;
                Show("One moment, please. The payment goes on."); // posd restarts: nothing is lost
                await Task.Delay(1000);
            }
            while (status != 200);
            payment = reply;
        }

        string text = Get(payment, "display", "text"), ticket = ", ticket " + Get(payment, "outcome", "ticket_number");
        switch (Get(payment, "next_step"))
        {
            case "done":
                string paid = Get(payment, "outcome", "authorized_amount");
                // 6: a gift card had less on it, and the text says so.
                return Settled(text + ticket, paid == "" || Exact(paid) == Exact(amount) ? 0 : 6);
            case "new_id_ok":
                string why = Get(payment, "outcome", "failure_reason", "message");
                return Settled($"{text}: {Get(payment, "outcome", "result")} {why}", 3);
        }
        var details = payment.GetProperty("attention").EnumerateArray().Select(item => Get(item, "detail"));
        return CallSupervisor(string.Join("; ", details));
    }

    /// <summary>Call posd. Status 0: no whole answer came, or none of posd.</summary>
    static async Task<(int, JsonElement)> Call(string method, string path, string body = "")
    {
        try
        {
            var request = new HttpRequestMessage(new HttpMethod(method), "http://posd/v1/transactions/" + path);
            if (body != "") request.Content = new StringContent(body, Encoding.UTF8, "application/json");
            var response = await Posd.SendAsync(request);
            return ((int)response.StatusCode, JsonDocument.Parse(await response.Content.ReadAsStringAsync()).RootElement);
        }
        catch (Exception e) when (e is HttpRequestException or IOException or JsonException or TaskCanceledException)
        {
            return (0, default);
        }
    }

    /// <summary>Return the text or number there; empty where it is null or missing.</summary>
    static string Get(JsonElement found, params string[] path)
    {
        foreach (string name in path)
            if (found.ValueKind != JsonValueKind.Object || !found.TryGetProperty(name, out found)) return "";
        return found.ValueKind == JsonValueKind.Null ? "" : found.ToString();
    }

    static decimal Exact(string number) => decimal.Parse(number, NumberStyles.Float, CultureInfo.InvariantCulture);

    /// <summary>Put it on the disk, whole or not at all.</summary>
    static void Store(string text)
    {
        using (var file = File.Create(Open + ".new"))
        {
            file.Write(Encoding.UTF8.GetBytes(text));
            file.Flush(flushToDisk: true);
        }
        File.Move(Open + ".new", Open, overwrite: true);
        var sync = Process.Start("sync", "\"" + Folder + "\""); // .NET cannot do it for a directory
        sync.WaitForExit();
        if (sync.ExitCode != 0) throw new IOException("sync has failed");
    }

    /// <summary>Say how it ended; it is open no more.</summary>
    static int Settled(string words, int code)
    {
        Show(words);
        File.Delete(Open); // a till books the result before
        if (notYet == "") return code;
        Show(notYet + " WAS NOT CHARGED: it was the turn of the payment that was left open");
        return 5;
    }

    /// <summary>The payment stays noted as open.</summary>
    static int CallSupervisor(string why)
    {
        Show("CALL THE SUPERVISOR: " + why);
        return 4;
    }

    static void Show(string text)
    {
        if (text != shown) Console.WriteLine(text);
        shown = text;
    }
}
