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
    static readonly string Open = Path.Combine(Folder, "open-payment"); // the payment without an outcome: id, made, amount
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
        if (!leftOpen) Store($"{Guid.NewGuid()}\n{DateTime.UtcNow:yyyy-MM-ddTHH:mm:ss.fffZ}\n{arguments[0]}");
        else if (arguments.Length > 0) notYet = arguments[0];
        string[] stored = File.ReadAllText(Open).Split('\n', 3);
        string id = stored[0], made = stored[1], amount = stored[2];
        if (leftOpen) Show($"First, the payment of {amount} that was left open:");

        // Start it, or hear that it is known: both are the same call. The amount is a text: a binary float is not exact.
        string request = "{\"amount\": {\"subtotal_iva0\": \"" + JsonEncodedText.Encode(amount) + "\"}}";
        for (int attempt = 1; ; attempt++)
        {
            var (status, answer) = await Call("PUT", id, request);
            if (status == 200 || status == 201)
            {
                Show(Get(answer, "display", "text"));
                break;
            }
            string detail = Get(answer, "detail"), step = Get(answer, "next_step");
            // posd knows that nothing was ever sent under this id, or the till, whose id is newer than what a restore lost.
            string lost = Get(answer, "records_missing_until");
            bool newer = lost != "" && string.CompareOrdinal(made, lost) > 0;
            bool neverStarted = newer || Get(answer, "never_started") == "True";
            if (step == "new_id_ok" || (neverStarted && (step != "same_call" || attempt >= 3)))
                return Settled("NOT PAID: " + detail, 3);
            // A person has to look, or an earlier call may have started it.
            if (Get(answer, "code") != "" && step != "same_call") return CallSupervisor(detail);
            Show(detail == "" ? "One moment, please" : detail); // the same call with the same id is always safe
            string seconds = Get(answer, "retry_after_seconds");
            await Task.Delay(1000 * (seconds == "" ? 1 : int.Parse(seconds)));
        }

        while (true)
        {
            // Returns with the outcome; the 2 seconds are for what is shown, they decide nothing.
            var (status, outcome) = await Call("GET", id + "/outcome?timeout=2");
            string text = Get(outcome, "display", "text");
            if (status == 200) return await Tell(id, amount, outcome, text);
            if (status == 404 || status == 410) return CallSupervisor(Get(outcome, "detail"));
            if (status == 202) Show(text); // where the next step is ask_person, it sends for the supervisor
            else
            {
                Show("One moment, please. The payment goes on."); // posd restarts: nothing is lost
                await Task.Delay(1000);
            }
        }
    }

    static async Task<int> Tell(string id, string amount, JsonElement outcome, string text)
    {
        switch (Get(outcome, "next_step"))
        {
            case "done":
                string paid = Get(outcome, "authorized_amount"), ticket = ", ticket " + Get(outcome, "ticket_number");
                // 6: a gift card had less on it, and the text says so.
                return Settled(text + ticket, paid == "" || Exact(paid) == Exact(amount) ? 0 : 6);
            case "new_id_ok":
                return Settled($"{text}: {Get(outcome, "result")} {Get(outcome, "failure_reason", "message")}", 3);
        }
        var (_, payment) = await Call("GET", id);
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
