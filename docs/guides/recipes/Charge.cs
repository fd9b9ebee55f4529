// dotnet run Charge.cs AMOUNT: charge a card and wait for the outcome, with .NET 10 (in a project: from .NET 6 on).
// dotnet run Charge.cs: settle the payment that a crash left open.
//
// The program prints what the cashier should see. Exit codes:
// 0 paid; 3 not paid; 6 paid, but another amount; 4 an operator has to check the payment;
// 5 AMOUNT was not charged, because an open payment was settled or another charge runs;
// 2 wrong usage; 1 the program failed, and the payment may be open.
using System;
using System.Diagnostics;
using System.Globalization;
using System.IO;
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
    static string id = "", shown = "", notYet = ""; // last: used after the open payment is settled

    static readonly HttpClient Posd = new HttpClient(new SocketsHttpHandler
    {
        UseProxy = false,
        ConnectCallback = async (context, cancel) =>
        {
            var socket = new Socket(AddressFamily.Unix, SocketType.Stream, ProtocolType.Unspecified);
            await socket.ConnectAsync(new UnixDomainSocketEndPoint(SocketPath), cancel);
            return new NetworkStream(socket, ownsSocket: true);
        },
    })
    { Timeout = TimeSpan.FromSeconds(30) };

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

    static FileStream theLock; // one run at a time; the lock is released when this program ends, also by a crash

    static async Task<int> Run(string[] arguments)
    {
        try
        {
            theLock = new FileStream(Open + ".lock", FileMode.OpenOrCreate, FileAccess.Write, FileShare.None);
        }
        catch (IOException) when (File.Exists(Open + ".lock"))
        {
            Show((arguments.Length > 0 ? arguments[0] + " WAS NOT CHARGED: " : "") + "another charge of this till is running");
            return 5;
        }
        bool leftOpen = File.Exists(Open);
        if (!leftOpen && arguments.Length != 1)
        {
            Console.Error.WriteLine("usage: Charge AMOUNT");
            return 2;
        }
        // Id and amount are on disk before the call.
        if (!leftOpen) Store($"{Guid.NewGuid()}\n{Now()}\n{arguments[0]}");
        else if (arguments.Length > 0) notYet = arguments[0];
        string[] stored = File.ReadAllText(Open).Split('\n', 3);
        string made = stored[1], amount = stored[2];
        id = stored[0];
        if (leftOpen) Show($"First, the payment of {amount} that was left open:");

        // The amount is a text: a binary float is not exact.
        string request = "{\"amount\": {\"subtotal_iva0\": \"" + JsonEncodedText.Encode(amount) + "\"}}";
        bool mayBeStarted = leftOpen; // then ask for the outcome; start only if posd says never_started
        for (int tries = 0; ; )
        {
            var (status, answer) = mayBeStarted
                ? await Call("GET", "/outcome?timeout=2") // 2 seconds until the text is shown again
                : await Call("PUT", "", request);
            string text = Get(answer, "display", "text"), detail = Get(answer, "detail"), step = Get(answer, "next_step");
            string lostUntil = Get(answer, "records_missing_until"), after = Get(answer, "retry_after_seconds");
            // No restore lost a record made after that time. A `made` in the future comes from a wrong clock and proves nothing.
            bool newer = lostUntil != "" && string.CompareOrdinal(made, lostUntil) > 0
                && string.CompareOrdinal(made, Now()) <= 0;
            bool neverStarted = newer || Get(answer, "never_started") == "True";
            if (mayBeStarted && status == 200)
            {
                if (step == "done")
                {
                    string paid = Get(answer, "authorized_amount"), tip = Get(answer, "tip");
                    bool all = paid == "" || Exact(paid) == Exact(amount) + Exact("0" + tip); // a gift card can have less money
                    return End($"{text}, ticket {Get(answer, "ticket_number")}", all ? 0 : 6);
                }
                if (step == "new_id_ok")
                    return End($"{text}: {Get(answer, "result")} {Get(answer, "failure_reason", "message")}", 3);
                return End($"{text} (payment {id})", 4);
            }
            else if (status is 200 or 201 or 202)
            {
                mayBeStarted = true;
                Show(text);
            }
            else if (mayBeStarted && neverStarted)
            {
                mayBeStarted = false;
            }
            else
            {
                bool wait = status == 0 || step == "same_call" || (mayBeStarted && (status == 429 || status >= 500));
                if (neverStarted && (!wait || ++tries == 3)) return End($"NOT PAID: {detail}", 3);
                if (!wait) return End($"CALL THE SUPERVISOR: {detail} (payment {id})", 4);
                mayBeStarted = true;
                Show(detail == "" ? "One moment, please" : detail); // posd restarts, or the terminal is busy
                await Task.Delay(1000 * (after == "" ? 1 : int.Parse(after)));
            }
        }
    }

    /// <summary>Call posd about this payment. Status 0: no complete reply of posd arrived.</summary>
    static async Task<(int, JsonElement)> Call(string method, string path, string body = "")
    {
        try
        {
            var request = new HttpRequestMessage(new HttpMethod(method), $"http://posd/v1/transactions/{id}{path}");
            if (body != "") request.Content = new StringContent(body, Encoding.UTF8, "application/json");
            var response = await Posd.SendAsync(request);
            var answer = JsonDocument.Parse(await response.Content.ReadAsStringAsync()).RootElement;
            bool ofPosd = Get(answer, "code") != "" || Get(answer, "display", "text") != "";
            return ofPosd ? ((int)response.StatusCode, answer) : (0, default);
        }
        catch (Exception e) when (e is HttpRequestException or IOException or JsonException or TaskCanceledException)
        {
            return (0, default);
        }
    }

    /// <summary>Return the text or number at a path; empty if it is null or missing.</summary>
    static string Get(JsonElement found, params string[] path)
    {
        foreach (string name in path)
            if (found.ValueKind != JsonValueKind.Object || !found.TryGetProperty(name, out found)) return "";
        return found.ValueKind == JsonValueKind.Null ? "" : found.ToString();
    }

    static string Now() => DateTime.UtcNow.ToString("yyyy-MM-ddTHH:mm:ss.fffZ", CultureInfo.InvariantCulture);

    static decimal Exact(string number) => decimal.Parse(number, NumberStyles.Float, CultureInfo.InvariantCulture);

    /// <summary>Write the payment to the disk, completely or not at all.</summary>
    static void Store(string text)
    {
        using (var file = File.Create(Open + ".new"))
        {
            file.Write(Encoding.UTF8.GetBytes(text));
            file.Flush(flushToDisk: true);
        }
        File.Move(Open + ".new", Open, overwrite: true);
        var sync = Process.Start("sync", "\"" + Folder + "\""); // .NET cannot sync a directory
        sync.WaitForExit();
        if (sync.ExitCode != 0) throw new IOException("sync has failed");
    }

    /// <summary>Print the result. A payment that an operator has to check stays stored.</summary>
    static int End(string words, int code)
    {
        Show(words);
        if (code == 4) return code;
        File.Delete(Open); // a till books the result first
        if (notYet == "") return code;
        Show(notYet + " WAS NOT CHARGED: the payment that was left open was settled instead");
        return 5;
    }

    static void Show(string text)
    {
        if (text != shown) Console.WriteLine(text);
        shown = text;
    }
}
