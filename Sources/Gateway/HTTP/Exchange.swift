import ByteStreams
import Configuration
import HTTPCodec
import Metrics
import Reactor
import Sessions

/// One request on its way to its answer.
enum Exchange {
  case none
  /// A message for the upstream, whose content is arriving.
  case sending(IncomingMessage)
  /// A change of the session, whose document is arriving.
  case changing(SessionWish)
  case polling(PollParameters)
  /// Answered when the request has ended; its content is read and dropped.
  case simple(Route)
}

extension HTTPConnection {
  /// Decides what the request is for, from its head.
  func beginExchange() {
    exchange = .none
    if let problem = shared.access.refusal(of: http.request, on: reach) {
      exchange = .simple(.problem(problem))
      return
    }
    let route = Route.find(http.request, for: role, deliveries: shared.session.deliveryPrefix)
    switch route {
    case .sendMessage:
      do throws(ProblemError) {
        exchange = .sending(try IncomingMessage(http.request, settings))
      } catch {
        exchange = .simple(.problem(error.problem))
      }
    case .changeSession:
      do throws(ProblemError) {
        exchange = .changing(try SessionWish(http.request))
      } catch {
        exchange = .simple(.problem(error.problem))
      }
    case .receiveMessages:
      do throws(ProblemError) {
        exchange = .polling(try PollParameters(http.request, shared.settings.delivery))
      } catch {
        exchange = .simple(.problem(error.problem))
      }
    case .delivery, .session, .describe, .live, .ready, .started, .metrics, .status, .problem, .options:
      exchange = .simple(route)
    }
  }

  func takeContent() {
    switch exchange {
    case .sending(var message):
      // Out of the enum while it grows, so that its buffer is not copied.
      exchange = .none
      message.append(http.content)
      exchange = .sending(message)
    case .changing(var wish):
      exchange = .none
      wish.append(http.content)
      exchange = .changing(wish)
    case .none, .polling, .simple:
      break
    }
  }

  /// Responds to a request whose content changes nothing, for a client that waits for `100 Continue` before it sends it. False:
  /// the content is wanted, or the request is a poll that must wait. That is held only once its request has ended, since
  /// only then what the client may send meanwhile is limited, by `http.pipelined_bytes`.
  func respondBeforeContent() -> Bool {
    switch exchange {
    case .none, .sending, .changing: return false
    case .polling(let parameters):
      guard !poll(parameters) else {
        held = nil
        return false
      }
    case .simple(let route): answer(route)
    }
    exchange = .none
    return true
  }

  /// Responds to the request that has ended. True: it is a poll that must wait.
  func finishExchange() -> Bool {
    let current = exchange
    exchange = .none
    switch current {
    case .none: break
    case .sending(let message): send(message)
    case .changing(let wish): change(wish)
    case .polling(let parameters): return poll(parameters)
    case .simple(let route): answer(route)
    }
    return false
  }

  private func answer(_ route: Route) {
    switch route {
    case .problem(let problem): answer(problem)
    case .options(let methods):
      respond(.noContent, .none) { output in output.appendField("Allow", methods) }
    case .delivery(let sequence): answerDelivery(sequence)
    case .session: answerSession()
    case .describe:
      answer(.ok, "application/yaml") { output in output.append(OpenAPIDocument.text) }
    case .live: answer(.ok, "text/plain; charset=utf-8") { output in output.append("ok\n" as StaticString) }
    case .ready: answerReadiness()
    case .started:
      let isStarted = shared.phase != .starting
      answer(isStarted ? .ok : .serviceUnavailable, "text/plain; charset=utf-8") { output in
        output.append(isStarted ? "ok\n" as StaticString : "starting\n")
      }
    case .metrics:
      answer(.ok, "text/plain; version=0.0.4; charset=utf-8") { output in shared.metrics.render(into: &output) }
    case .status: answerStatusPage()
    case .sendMessage, .receiveMessages, .changeSession: preconditionFailure("these have exchanges of their own")
    }
  }

  // MARK: Forms of answers

  /// Writes a head; `fields` adds to it, `content` follows by the caller where there is some.
  func respond(_ status: HTTPStatus, _ content: HTTPResponseContent, fields: (inout ByteQueue) -> Void) {
    if worker.isDraining { http.closeAfterThisResponse() }
    worker.withDate { date in
      withOutput { http, output in
        http.beginResponse(status, content, date: date, into: &output)
        fields(&output)
        output.append("Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n" as StaticString)
        output.endFields()
        if content == .none { http.finishResponse(into: &output) }
      }
    }
  }

  /// A whole small answer: `body` writes the content. `location`: the delivery that the answer speaks of.
  func answer(
    _ status: HTTPStatus, _ type: StaticString, retryAfter: Int? = nil, allow: StaticString? = nil,
    location: UInt64? = nil,
    _ body: (inout ByteQueue) -> Void
  ) {
    var content = ByteQueue()
    swap(&content, &worker.scratch)
    content.removeAll()
    body(&content)
    respond(status, .length(content.count)) { output in
      output.appendField("Content-Type", type)
      if let retryAfter { output.appendField("Retry-After", decimal: retryAfter) }
      if let allow { output.appendField("Allow", allow) }
      if let location {
        output.append("Location: /v1/deliveries/" as StaticString)
        output.append(shared.session.deliveryPrefix)
        output.append(decimal: location)
        output.append("\r\n" as StaticString)
      }
    }
    withOutput { http, output in
      http.writeContent(content.bytes, into: &output)
      http.finishResponse(into: &output)
    }
    swap(&content, &worker.scratch)
  }

  func answer(_ problem: Problem) {
    let id = worker.nextRequestID()
    log(problem, requestID: id)
    answer(
      problem.status, "application/problem+json", retryAfter: problem.retryAfter, allow: problem.allow
    ) { output in problem.write(requestID: id, into: &output) }
  }
}

/// A problem found while a request is read.
struct ProblemError: Error {
  let problem: Problem
  init(_ kind: Problem.Kind, _ detail: String) { problem = Problem(kind, detail: detail) }
}
