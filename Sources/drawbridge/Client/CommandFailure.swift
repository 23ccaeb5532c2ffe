import ByteStreams

/// Why a command ends without success.
struct CommandFailure: Error {
  let code: Int32
  /// The message for standard error; empty if no message is needed.
  let message: String

  init(_ code: Int32, _ message: String) {
    self.code = code
    self.message = message
  }

  /// Runs `body`, and returns its exit code. If it throws, reports the failure, and returns the exit code of the
  /// failure.
  static func report(_ body: () throws(CommandFailure) -> Int32) -> Int32 {
    do throws(CommandFailure) {
      return try body()
    } catch {
      if !error.message.isEmpty { Terminal.note(error.message) }
      return error.code
    }
  }
}

extension GatewayClient {
  /// Sends a request. Throws unless the response is a success.
  ///
  /// - Parameter accepted: further status codes for which the response is returned and not thrown as an error.
  func success(
    of request: GatewayRequest, within span: TimeSpan = .seconds(Int64(GatewayConnection.timeoutSeconds)),
    accepting accepted: Set<Int> = []
  ) throws(CommandFailure) -> GatewayResponse {
    let response: GatewayResponse
    do throws(Failure) {
      response = try self.response(to: request, within: span)
    } catch {
      throw CommandFailure(error)
    }
    guard response.isSuccess || accepted.contains(response.status) else { throw refusal(response) }
    return response
  }

  /// Like `success`, but returns the JSON object in the response.
  func document(at path: String, within span: TimeSpan = .seconds(10)) throws(CommandFailure) -> Document {
    let request = GatewayRequest(path: path, fields: [("Accept", "application/json")])
    let response = try success(of: request, within: span)
    guard let document = response.document else { throw Self.noGateway }
    return document
  }

  func refusal(_ response: GatewayResponse) -> CommandFailure {
    let isTemporary = response.document?.isTrue("retryable") ?? false
    return CommandFailure(
      isTemporary ? ExitCode.temporary : ExitCode.unavailable,
      "the gateway refuses the request: \(reason(of: response))")
  }

  static let noGateway = CommandFailure(
    ExitCode.unavailable, "the response is not from a gateway: is this the address of a gateway?")
}

extension CommandFailure {
  init(_ failure: GatewayClient.Failure) {
    switch failure {
    case .stopped: self.init(ExitCode.ok, "")
    case .connection(let reason): self.init(ExitCode.unavailable, reason)
    case .file(let reason): self.init(ExitCode.noInput, reason)
    }
  }
}
