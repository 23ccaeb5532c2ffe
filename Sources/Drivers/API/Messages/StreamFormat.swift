import Access
import ByteStreams
import HTTPServer
import Inbox
import Sessions
import Upstream
import UpstreamSession

/// The format of a stream: server-sent events (WHATWG HTML, section 9.2), or one JSON object per line.
///
/// Each message and each gap is followed by the position after it. A client whose connection breaks continues from the
/// last position that it has received. Heartbeats state a position without a message, for clients whose topics match
/// few pushes.
enum StreamFormat: UInt8 {
  case events
  case lines

  /// How long a browser waits before it reconnects, in milliseconds. By default, browsers wait 3 to 5 s.
  private static var retry: Int { 2_000 }

  var representation: Representation {
    switch self {
    case .events: .events
    case .lines: .lines
    }
  }

  /// Writes the beginning of a stream, with the position `start`, from which a client continues if its connection
  /// breaks before the first message. If a gap follows, the beginning has no position, so that a client whose
  /// connection breaks before the gap gets the gap again.
  func writeBeginning(_ start: ReadStart, into text: inout ByteQueue) {
    if self == .events {
      text.append("retry: " as StaticString)
      text.append(decimal: Self.retry)
      text.append("\n" as StaticString)
    }
    if start.gap == nil {
      writeHeartbeat(start.cursor, into: &text)
    } else if self == .events {
      text.append("\n" as StaticString)
    }
  }

  /// Writes the position. Browsers do not dispatch an event without data, but such an event sets the last event ID.
  func writeHeartbeat(_ cursor: Cursor, into text: inout ByteQueue) {
    switch self {
    case .events:
      writeID(cursor, into: &text)
      text.append("\n" as StaticString)
    case .lines:
      text.append("{\"type\":\"heartbeat\",\"cursor\":\"" as StaticString)
      cursor.write(into: &text)
      text.append("\"}\n" as StaticString)
    }
  }

  /// Writes a batch: the gap, and after it the messages that fit in `StreamLimits.contentBytes`, but at least one
  /// message. Returns the number of messages.
  ///
  /// - Parameter omitsData: write the size of each payload instead of the payload.
  func write(
    _ result: ReadResult, omittingData omitsData: Bool, _ lines: inout SingleLines, into content: inout ResponseContent
  ) -> Int {
    if let gap = result.gap { write(gap, result.cursorAfterGap, into: &content.text) }
    var count = 0
    for message in result.messages {
      let hasFields =
        !omitsData && self == .events && message.hasLineBreaks && message.rendered.count <= Self.largestOfSeveralFields
      let most = message.rendered.count * (hasFields ? 7 : 1) + Self.mostAround
      if count > 0, content.count + most > StreamLimits.contentBytes { break }
      count += 1
      switch self {
      case .events where omitsData:
        writeID(message.id(like: result.cursor), into: &content.text)
        content.text.append("data: " as StaticString)
        message.writeWithoutPayload(into: &content.text)
        content.text.append("\n\n" as StaticString)
      case .lines where omitsData:
        message.writeWithoutPayload(into: &content.text)
        content.text.append("\n" as StaticString)
      case .events:
        writeID(message.id(like: result.cursor), into: &content.text)
        content.text.append("data: " as StaticString)
        if hasFields {
          writeFields(message.rendered, into: &content)
        } else {
          lines.write(message, into: &content)
        }
        content.text.append("\n\n" as StaticString)
      case .lines:
        lines.write(message, into: &content)
        content.text.append("\n" as StaticString)
      }
    }
    return count
  }

  private func write(_ gap: Gap, _ cursor: Cursor, into text: inout ByteQueue) {
    switch self {
    case .events:
      text.append("event: gap\n" as StaticString)
      writeID(cursor, into: &text)
      text.append("data: {" as StaticString)
      gap.writeMembers(into: &text)
      text.append("}\n\n" as StaticString)
    case .lines:
      text.append("{\"type\":\"gap\",\"cursor\":\"" as StaticString)
      cursor.write(into: &text)
      text.append("\"," as StaticString)
      gap.writeMembers(into: &text)
      text.append("}\n" as StaticString)
    }
  }

  /// Writes the state of the session after `transition`, or its current state if `transition` is nil. The state has no
  /// position, so a client that reconnects gets the current state again.
  func write(
    _ snapshot: SessionSnapshot, after transition: SessionTransition?, of session: Session, _ replica: SessionReplica?,
    for grant: Grant?, at now: MonotonicTime, into text: inout ByteQueue
  ) {
    text.append(self == .events ? "event: session\ndata: {" : "{\"type\":\"session\"," as StaticString)
    snapshot.writeState(
      name: session.name, after: transition, replica: replica, now: now, showingRefusal: grant.showsRefusals,
      into: &text)
    text.append(self == .events ? "}\n\n" : "}\n" as StaticString)
  }

  /// Writes the state of a remote session.
  func write(_ replica: SessionReplica, into text: inout ByteQueue) {
    text.append(self == .events ? "event: session\ndata: {" : "{\"type\":\"session\"," as StaticString)
    replica.writeState(into: &text)
    text.append(self == .events ? "}\n\n" : "}\n" as StaticString)
  }

  private func writeID(_ cursor: Cursor, into text: inout ByteQueue) {
    text.append("id: " as StaticString)
    cursor.write(into: &text)
    text.append("\n" as StaticString)
  }

  /// The most bytes that are written around a message: `id: `, the cursor, `data: ` and three line breaks.
  private static var mostAround: Int { 13 + Cursor.maximumTextLength }

  /// A message above this size is sent on one line. On several lines, each line break adds 6 bytes, so a message that
  /// consists of line breaks would become seven times as large.
  private static var largestOfSeveralFields: Int { 4 << 10 }

  /// Writes each line of `rendered` as a separate `data` field. The client joins them with LF.
  private func writeFields(_ rendered: ByteString, into content: inout ResponseContent) {
    let bytes = rendered.bytes
    var start = 0
    var index = 0
    while index < bytes.count {
      let byte = bytes[index]
      index += 1
      guard byte == UInt8(ascii: "\n") || byte == UInt8(ascii: "\r") else { continue }
      MessagesContent.write(ByteSlice(rendered, range: start..<(index - 1)), into: &content)
      content.text.append("\ndata: " as StaticString)
      // CRLF is one line break.
      if byte == UInt8(ascii: "\r"), index < bytes.count, bytes[index] == UInt8(ascii: "\n") { index += 1 }
      start = index
    }
    MessagesContent.write(ByteSlice(rendered, range: start..<bytes.count), into: &content)
  }
}

extension ReadResult {
  /// The position after the gap and before the first message.
  fileprivate var cursorAfterGap: Cursor {
    guard let first = messages.first else { return cursor }
    return Cursor(epoch: cursor.epoch, term: cursor.term, sequence: first.sequence - 1, isAfterGap: true)
  }
}
