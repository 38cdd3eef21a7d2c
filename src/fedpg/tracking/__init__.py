"""Where else a run's numbers go while it runs: TensorBoard, Weights & Biases, MLflow. The run folder stays the truth."""
