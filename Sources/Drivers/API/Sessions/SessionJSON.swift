import ByteStreams
import Inbox
import JSONCodec
import Outbox
import Sessions
import Upstream
import UpstreamProtocol
import UpstreamSession

extension SessionSnapshot {
  /// Writes the body of `GET /v1/session`. Times are durations from or until now, in seconds, so that clients need no
  /// synchronised clock.
  ///
  /// - Parameter replica: this gateway's part of the document. nil if no other gateway shares the session, or if the
  ///   response is for another gateway, which adds its own part.
  func write(
    of session: Session, store: StoreStatus, replica: SessionReplica?, now: MonotonicTime, showingRefusal: Bool,
    into output: inout ByteQueue
  ) {
    output.append("{")
    writeOverviewMembers(of: session, now: now, showingRefusal: showingRefusal, into: &output)
    output.append(",\"store\":")
    store.write(showingReason: true, into: &output)
    output.append(",\"proxy\":")
    output.append(jsonStringOrNull: status.proxy)
    output.append(",\"generation\":")
    output.append(decimal: generation.number)
    output.append(",\"connections\":")
    output.append(decimal: status.connections)
    output.append(",\"subprotocol\":")
    output.append(jsonStringOrNull: status.subprotocol)
    output.append(",\"compression\":")
    output.append(status.isCompressed ? "true" : "false" as StaticString)
    output.append(",\"last_refusal\":")
    writeRefusal(into: &output)
    if session.upstream.hasEvents {
      output.append(",\"namespaces\":[")
      for (index, namespace) in session.upstream.namespaces.enumerated() {
        output.append(index == 0 ? "{\"name\":" : ",{\"name\":" as StaticString)
        output.append(jsonString: namespace.name)
        output.append(",\"required\":")
        output.append(namespace.isRequired ? "true" : "false" as StaticString)
        output.append(",\"state\":")
        output.append(jsonString: namespace.state.rawValue)
        output.append(",\"reason\":")
        output.append(jsonStringOrNull: namespace.reason)
        output.append("}")
      }
      output.append("]")
    }
    writeCaptures(of: session, into: &output)
    output.append(",\"messages\":{")
    for (index, entry) in ledger.enumerated() {
      output.append(index == 0 ? "\"" : ",\"" as StaticString)
      output.append(entry.state.name)
      output.append("\":")
      output.append(decimal: entry.count)
    }
    output.append("},\"history\":[")
    for (index, transition) in status.history.enumerated() {
      if index > 0 { output.append(",") }
      write(transition, now: now, into: &output)
    }
    output.append("],\"creation\":")
    Self.writeCreation(of: session, now: now, into: &output)
    write(replica, into: &output)
    output.append("}")
  }

  private func writeCaptures(of session: Session, into output: inout ByteQueue) {
    guard let captures = session.upstream.shownCaptures else { return }
    output.append(",\"captures\":{")
    for (index, capture) in captures.enumerated() {
      if index > 0 { output.append(",") }
      output.append(jsonString: capture.name)
      output.append(":")
      switch capture.value?.shown {
      case nil: output.append("null")
      case let value? where value.isText: output.append(jsonString: String(decoding: value.content, as: UTF8.self))
      case let value?: output.append(value.content)
      }
    }
    output.append("}")
  }

  private func write(_ replica: SessionReplica?, into output: inout ByteQueue) {
    guard let replica else { return }
    output.append(",")
    replica.write(into: &output)
  }

  /// Writes who created the session, and how. Only the owner of the session and clients with the scope `admin` see
  /// these members.
  static func writeCreation(of session: Session, now: MonotonicTime, into output: inout ByteQueue) {
    guard let creation = session.creation else {
      output.append("null")
      return
    }
    output.append("{\"profile\":")
    output.append(jsonString: creation.profile)
    output.append(",\"variables\":{")
    for (index, name) in creation.variables.keys.sorted().enumerated() {
      if index > 0 { output.append(",") }
      output.append(jsonString: name)
      output.append(":")
      output.append(jsonString: creation.variables[name] ?? "")
    }
    output.append("},\"owner\":")
    output.append(jsonString: creation.owner)
    output.append(",\"seconds_ago\":")
    output.append(seconds: now - creation.time)
    output.append(",\"closes_in_seconds\":")
    output.append(seconds: session.idleDeadline(at: now).map { max(.zero, $0 - now) })
    output.append("}")
  }

  /// Writes one element of `GET /v1/sessions`.
  func writeSummary(
    of session: Session, replica: SessionReplica?, now: MonotonicTime, showingRefusal: Bool,
    into output: inout ByteQueue
  ) {
    output.append("{")
    writeOverviewMembers(of: session, now: now, showingRefusal: showingRefusal, into: &output)
    write(replica, into: &output)
    output.append("}")
  }

  /// The last failure, followed by the first line of the body of the response that refused the attempt.
  private var failureWithRefusal: String? {
    guard let failure = status.lastFailure, let body = status.lastReport?.body else { return status.lastFailure }
    var line = ""
    var rest = Substring(body)
    // In `body`, line breaks are written as `\r` and `\n`.
    while let character = rest.first, line.count < Self.refusalCharacters {
      if rest.hasPrefix("\\r") || rest.hasPrefix("\\n") {
        if line.contains(where: { $0 != " " }) { break }
        line = ""
        rest = rest.dropFirst(2)
      } else {
        line.append(character)
        rest = rest.dropFirst()
      }
    }
    return line.isEmpty ? failure : "\(failure): \(line)"
  }

  private func writeFailure(showingRefusal: Bool, into output: inout ByteQueue) {
    output.append(",\"last_failure\":")
    output.append(jsonStringOrNull: showingRefusal ? failureWithRefusal : status.lastFailure)
  }

  /// Maximum length of the line of a refusal, in characters. Longer lines occur in HTML error pages, and the rest of
  /// such a line contains nothing useful.
  private static var refusalCharacters: Int { 200 }

  /// Writes the members that `GET /v1/session` and each element of `GET /v1/sessions` have.
  private func writeOverviewMembers(
    of session: Session, now: MonotonicTime, showingRefusal: Bool, into output: inout ByteQueue
  ) {
    writeSummaryMembers(name: session.name, into: &output)
    output.append(",\"seconds_in_state\":")
    // `since` may be later than `now`: a new session may have been created after the loop's turn began, and `now` is
    // the beginning of the turn.
    output.append(seconds: max(now - since, .zero))
    output.append(",\"failed_attempts\":")
    output.append(decimal: attempts)
    output.append(",\"next_attempt_in_seconds\":")
    output.append(seconds: nextAttempt.map { max(.zero, $0 - now) })
    output.append(",\"round_trip_seconds\":")
    output.append(seconds: status.roundTrip, digits: 6)
    writeFailure(showingRefusal: showingRefusal, into: &output)
    output.append(",\"last_failure_seconds_ago\":")
    output.append(seconds: status.lastFailureAt.map { now - $0 })
    output.append(",\"queue\":{\"messages\":")
    output.append(decimal: queuedMessages)
    output.append(",\"bytes\":")
    output.append(decimal: queuedBytes)
    output.append(",\"unconfirmed\":")
    output.append(decimal: unconfirmedMessages)
    output.append(",\"redeliveries\":")
    output.append(decimal: redeliveries)
    output.append("},")
    Self.writePushes(of: session, into: &output)
  }

  static func writePushes(of session: Session, into output: inout ByteQueue) {
    let inbox = session.inbox.summary
    output.append("\"pushes\":{\"received\":")
    output.append(decimal: inbox.last.sequence)
    output.append(",\"retained\":")
    output.append(decimal: inbox.count)
    output.append(",\"bytes\":")
    output.append(decimal: inbox.bytes)
    output.append("}")
  }

  /// Writes the members of a `session` event: the summary with the state after `transition`, the last failure, and the
  /// transition or null.
  func writeState(
    name: String, after transition: SessionTransition?, replica: SessionReplica?, now: MonotonicTime,
    showingRefusal: Bool, into output: inout ByteQueue
  ) {
    writeSummaryMembers(name: name, state: transition?.to, into: &output)
    writeFailure(showingRefusal: showingRefusal, into: &output)
    output.append(",\"transition\":")
    if let transition {
      write(transition, now: now, into: &output)
    } else {
      output.append("null")
    }
    write(replica, into: &output)
  }

  /// - Parameter shown: replaces the current state.
  private func writeSummaryMembers(name: String, state shown: SessionState? = nil, into output: inout ByteQueue) {
    output.append("\"session\":")
    output.append(jsonString: name)
    output.append(",\"desired\":\"")
    output.append(desired == .up ? "up" : "down" as StaticString)
    output.append("\",\"state\":\"")
    output.append((shown ?? state).name)
    output.append("\",\"upstream\":")
    output.append(jsonString: url)
  }

  /// Writes how the upstream refused the last opening handshake. Only the status of its response is included. An error
  /// page may repeat the credentials that the gateway sent, which clients of the API must not see.
  private func writeRefusal(into output: inout ByteQueue) {
    guard let report = status.lastReport, let code = report.status else {
      output.append("null")
      return
    }
    output.append("{\"phase\":\"")
    output.append(report.phase.state.name)
    output.append("\",\"status\":")
    output.append(decimal: code)
    output.append("}")
  }

  private func write(_ transition: SessionTransition, now: MonotonicTime, into output: inout ByteQueue) {
    output.append("{\"sequence\":")
    output.append(decimal: transition.sequence)
    output.append(",\"from\":\"")
    output.append(transition.from.name)
    output.append("\",\"to\":\"")
    output.append(transition.to.name)
    output.append("\",\"cause\":")
    output.append(jsonString: transition.causeText)
    output.append(",\"generation\":")
    output.append(decimal: transition.generation.number)
    output.append(",\"phase\":")
    output.append(jsonStringOrNull: transition.failure?.phase.state.name)
    output.append(",\"status\":")
    if case .status(let status, retryAfter: _)? = transition.failure?.reason {
      output.append(decimal: status)
    } else {
      output.append("null")
    }
    output.append(",\"round_trip_seconds\":")
    output.append(seconds: transition.roundTrip, digits: 6)
    output.append(",\"next_attempt_in_seconds\":")
    output.append(seconds: transition.nextAttempt.map { $0 - transition.time })
    output.append(",\"seconds_ago\":")
    output.append(seconds: now - transition.time)
    output.append("}")
  }
}

extension ByteQueue {
  /// Appends seconds with `digits` (up to 9) decimal places, or `null`.
  mutating func append(seconds span: TimeSpan?, digits: Int = 3) {
    guard let span else {
      append("null")
      return
    }
    let nanoseconds = UInt64(max(0, span.nanoseconds))
    append(decimal: nanoseconds / 1_000_000_000)
    append(".")
    var unit: UInt64 = 100_000_000
    for _ in 0..<digits {
      append(decimal: nanoseconds / unit % 10)
      unit /= 10
    }
  }

  mutating func append(jsonStringOrNull text: String?) {
    if let text { append(jsonString: text) } else { append("null") }
  }
}
