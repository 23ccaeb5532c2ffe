import Foundation
import LoopbackSupport
import Reactor
import Sessions
import Synchronization
import Testing

/// Gateways of two versions serve the same sessions during an upgrade. `Tests/Golden/peer-messages.txt` has the
/// messages between two gateways of an earlier version, for each route: the forwarded request, and the holder's
/// response.
///
/// `DRAWBRIDGE_WRITE_GOLDEN=1 swift test --filter GoldenMessagesTests` writes the file again. Do this only for a new
/// route. Check in the diff that the messages for other routes have changed only in ids, times and numbers. A new file
/// hides messages that an earlier gateway does not understand.
@Suite(.serialized) struct GoldenMessagesTests {
  /// A request or a response: its head and its body.
  private struct Message {
    var request = ""
    var response = ""
  }

  private static let file = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().deletingLastPathComponent().appendingPathComponent("Tests/Golden/peer-messages.txt")

  @Test func theHolderRespondsToRequestsOfAnEarlierVersionAsBefore() throws {
    if ProcessInfo.processInfo.environment["DRAWBRIDGE_WRITE_GOLDEN"] != nil { try write(recorded()) }
    let holder = try TestGateway()
    for message in try messages() {
      let gateway = try holder.connectAsPeer()
      gateway.send(message.request)
      let response = try #require(gateway.readMessage())
      #expect(masked(response.head + response.body) == masked(message.response), "\(message.request)")
    }
  }

  @Test func requestsAreForwardedAsByAnEarlierVersion() throws {
    let messages = try messages()
    let received = ForwardedMessages()
    let peer = try ScriptedPeer { client in
      while let (head, body) = client.readMessage() {
        let number = received.append(Message(request: head + body))
        client.send(number < messages.count ? messages[number].response : "HTTP/1.1 500 \r\n\r\n")
      }
    }
    defer { peer.stop() }
    let gateway = try TestGateway(.at(peer.address))
    for request in ForwardingTests.requests {
      let known = received.all.count
      let response = try gateway.request(request.method, request.target, request.fields, request.body)
      guard received.all.count > known, known < messages.count else { continue }
      #expect(messages[known].response.hasPrefix("HTTP/1.1 \(response.status) "), "\(request)")
      #expect(masked(received.all[known].request) == masked(messages[known].request))
    }
    #expect(received.all.count == messages.count)
  }

  // MARK: Messages

  private final class ForwardedMessages: Sendable {
    private let messages = Mutex<[Message]>([])
    var all: [Message] { messages.withLock { $0 } }

    /// Returns the number of the message.
    func append(_ message: Message) -> Int {
      messages.withLock {
        $0.append(message)
        return $0.count - 1
      }
    }
  }

  /// The messages between two gateways of this version.
  private func recorded() throws -> [Message] {
    let (holder, passed) = (try TestGateway(), ForwardedMessages())
    let address = holder.peerAddress
    let relay = try ScriptedPeer { client in
      while let request = client.readMessage(), let holder = try? LoopbackClient(to: address) {
        holder.send(request.head + request.body)
        guard let response = holder.readMessage() else { return }
        _ = passed.append(
          Message(request: request.head + request.body, response: response.head + response.body))
        client.send(response.head + response.body)
      }
    }
    defer { relay.stop() }
    let gateway = try TestGateway(.at(relay.address))
    for request in ForwardingTests.requests {
      _ = try gateway.request(request.method, request.target, request.fields, request.body)
    }
    return passed.all
  }

  /// Replaces parts that differ from run to run: ids, times, and numbers in the bodies of responses. The title of a
  /// problem is text for people, which no gateway reads.
  private func masked(_ text: String) -> String {
    let parts = text.components(separatedBy: "\r\n\r\n")
    // Earlier gateways do not send `drawbridge-retention`, and ignore it.
    let lines = parts[0].components(separatedBy: "\r\n").filter { !$0.hasPrefix("drawbridge-retention: ") }
    let head = lines.map { line in
      line.replacing(/(?i)^(host|date|x-request-id|location|etag|drawbridge-forwarded): .*/) { "\($0.1): *" }
    }
    guard head[0].hasPrefix("HTTP/") else { return head.joined(separator: "\n") + "\n\n" + parts[1] }
    let fields = head.map { $0.hasPrefix("Content-Length: ") ? "Content-Length: *" : $0 }
    let body = parts[1].replacing(/-[0-9a-f]{12}\./, with: "-0.").replacing(/"(request_id|title)":"[^"]*"/, with: "")
      .replacing(/[0-9]+/, with: "0")
    return fields.joined(separator: "\n") + "\n\n" + body
  }

  // MARK: The file

  /// Lines with `>` belong to requests, and lines with `<` to their responses. The line with `=` is the body.
  private func messages() throws -> [Message] {
    var messages: [Message] = []
    for line in try String(contentsOf: Self.file, encoding: .utf8).split(separator: "\n") where !line.hasPrefix("#") {
      let isBody = line.dropFirst().first == "="
      let content = String(line.dropFirst(3))
      let text = isBody ? "\r\n" + content.replacing("\\n", with: "\n") : content + "\r\n"
      if line.first == ">" {
        if messages.last?.response.isEmpty != true { messages.append(Message()) }
        messages[messages.count - 1].request += text
      } else {
        messages[messages.count - 1].response += text
      }
    }
    return messages
  }

  private func write(_ messages: [Message]) throws {
    func lines(_ text: String, _ mark: String) -> String {
      let parts = text.components(separatedBy: "\r\n\r\n")
      return parts[0].components(separatedBy: "\r\n").map { "\(mark)  \($0)\n" }.joined()
        + "\(mark)= \(parts[1].replacing("\n", with: "\\n"))\n"
    }
    let text =
      "# What gateways forward (>), and how holders respond (<). GoldenMessagesTests says when to write it anew.\n"
    try (text + messages.map { lines($0.request, ">") + lines($0.response, "<") }.joined())
      .write(to: Self.file, atomically: true, encoding: .utf8)
  }
}
